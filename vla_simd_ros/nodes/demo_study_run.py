"""Runs what ``vla_simd demo`` was asked for beyond one run: a study, the check of the prediction, a soak."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vla_simd_ros.nodes.demo_pacing import format_pacing, pacing_study
from vla_simd_ros.nodes.demo_processes import ProcessGroup
from vla_simd_ros.nodes.demo_run import DemoSettings, plain
from vla_simd_ros.nodes.demo_series import DemoSeries, series_settings
from vla_simd_ros.nodes.demo_soak import DemoSoak, format_soak, soak_failures
from vla_simd_ros.nodes.demo_studies import Study, StudyRow, check_confidence, misses
from vla_simd_ros.nodes.demo_study_report import draw_study, format_study

_RUN_CONFIDENCE = 0.95
Say = Callable[[str], None]


def run_study(settings: DemoSettings, group: ProcessGroup, say: Say) -> int:
    """Run what the settings ask for and write its results; 1 where a check or a bound does not hold."""
    kind = settings.study["kind"]
    if kind == "soak":
        return _soak(settings, group, say)
    series = DemoSeries(series_settings(settings), group, say)
    try:
        series.begin()
        if kind == "pacing":
            return _pacing(settings, series, say)
        return _supply(settings, series, say)
    finally:
        series.close()


def _supply(settings: DemoSettings, series: DemoSeries, say: Say) -> int:
    kind, values = settings.study["kind"], settings.study.get("values", [])
    confidence = check_confidence() if kind == "verify" else _RUN_CONFIDENCE
    study = Study(series, settings.duration, confidence)
    if kind == "verify":
        rows, title, label = study.checks(), "Prediction against the nodes", "window H of each run"
    elif kind == "delay":
        rows, title, label = study.delays(values), "Injected delays", "delay added to each query (ms)"
    else:
        delay = settings.study["delay"]
        rows = study.horizons([int(value) for value in values], delay)
        title, label = f"Execution horizons, delay {delay}", "rows executed of each chunk, S"
    say("results\n\n" + format_study(rows) + "\n")
    picture = settings.out / f"{kind}_study.png"
    draw_study(rows, f"{title}: {settings.note}", label, picture)
    say(f"wrote {picture}")
    _write(settings, "rows", [asdict(row) for row in rows], say)
    return _verdict(rows, confidence, kind == "verify", say)


def _verdict(rows: Sequence[StudyRow], confidence: float, must_hold: bool, say: Say) -> int:
    missed = misses(rows)
    for text in missed:
        say(f"outside of the prediction: {text}")
    if not missed:
        say(f"starved steps and stale rows of all runs lie within their {confidence:.1%} intervals")
    return 1 if missed and must_hold else 0


def _pacing(settings: DemoSettings, series: DemoSeries, say: Say) -> int:
    results = pacing_study(series, settings.duration)
    say("results\n\n" + format_pacing(results) + "\n")
    _write(settings, "results", [asdict(result) for result in results], say)
    return 0


def _soak(settings: DemoSettings, group: ProcessGroup, say: Say) -> int:
    run = DemoSoak(settings, group, say)
    try:
        report = run.soak(settings.study["minutes"])
    finally:
        run.close()
    say("results\n\n" + format_soak(report) + "\n")
    _write(settings, "report", asdict(report), say)
    return 1 if soak_failures(report) else 0


def _write(settings: DemoSettings, name: str, value: Any, say: Say) -> None:
    path: Path = settings.out / f"{settings.study['kind']}_study.json"
    described = {"study": settings.study, "policy": settings.note, name: value}
    path.write_text(json.dumps(plain(described), indent=2) + "\n", encoding="utf-8")
    say(f"wrote {path}")
