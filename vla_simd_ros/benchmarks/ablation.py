"""What each setting of the engine is worth on this machine: the paper's Table IV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.consistency import Pair, Verdict
from vla_simd_ros.benchmarks.setting_runs import Say, SettingRuns
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.executors.settings import EngineSettings, SettingError, settings


@dataclass(frozen=True)
class Contrast:
    """A setting, and the two values that are compared."""

    title: str
    name: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Effect:
    """What was found for a contrast; without a verdict, ``reason`` says why it could not be measured."""

    contrast: Contrast
    verdict: Verdict | None
    pairs: Sequence[Pair] = ()
    reason: str = ""


def contrasts(threads: int) -> list[Contrast]:
    """The eleven settings, in the paper's order, for an engine of so many threads by default."""
    return [
        Contrast("Attention kernel", "attention", "materialized", "fused"),
        Contrast("bf16 expansion", "weight_storage", "float32", "auto"),
        Contrast("Min. panel rows", "min_panel_rows", 16, 4),
        Contrast("Convolution", "convolution", "direct", "flat"),
        Contrast("Block rows", "block_rows", 0, 64),
        Contrast("Thread schedule", "schedule", "static", "dynamic"),
        Contrast("Parallel cutoff", "parallel_cutoff", 8192, 1024),
        Contrast("Weight packing", "weight_packing", "on", "off"),
        Contrast("Thread count", "threads", threads, threads // 2),
        Contrast("Threads per view", "threads_per_view", 0, 2),
        Contrast("Thread waiting", "waiting", "passive", "active"),
    ]


def run_ablation(base: EngineSettings, runs: SettingRuns, say: Say) -> list[Effect]:
    """Measure every contrast that this machine can have, each changing one of the ``base`` settings."""
    threads = int(runs.details(base)["threads"])
    effects = []
    for contrast in contrasts(threads):
        say(f"{contrast.title}: {contrast.a} / {contrast.b}")
        effects.append(_measure(contrast, base, runs, threads))
    return effects


def _measure(contrast: Contrast, base: EngineSettings, runs: SettingRuns, threads: int) -> Effect:
    if contrast.name not in settings():
        return Effect(contrast, None, reason="the engine has no choice here")
    if contrast.name == "threads" and threads == 1:
        return Effect(contrast, None, reason="this machine has one core")
    try:
        a, b = (base.but(**{contrast.name: value}) for value in (contrast.a, contrast.b))
        verdict, pairs = runs.compare(a, b)
    except (SettingError, BenchmarkError) as error:
        return Effect(contrast, None, reason=str(error))
    return Effect(contrast, verdict, pairs)


def ablation_table(effects: Sequence[Effect]) -> list[str]:
    """Markdown: the consistently faster value of each setting and by how much; then why some are missing."""
    header = ("Setting", "A / B", "Result", "Effect %", "Drift %", "Pairs for A, B", "Pairs")
    missing = [f"- {effect.contrast.title}: {effect.reason}" for effect in effects if effect.reason]
    reasons = ["", "Not available here:", "", *missing] if missing else []
    return [*markdown_table(header, (_row(effect) for effect in effects), text_columns=3), *reasons]


def _row(effect: Effect) -> tuple[str, ...]:
    contrast, verdict = effect.contrast, effect.verdict
    label = f"{contrast.a} / {contrast.b}"
    if verdict is None:
        return (contrast.title, label, "n/a", "", "", "", "")
    won = verdict.faster != "="
    return (
        contrast.title,
        label,
        f"{verdict.faster} {100 * verdict.effect:+.1f}" if won else "=",
        f"{100 * verdict.effect:+.1f}",
        f"{100 * verdict.drift:.1f}",
        f"{verdict.pairs_a}, {verdict.pairs_b}",
        str(verdict.pairs),
    )


def effects_json(effects: Sequence[Effect]) -> list[Mapping[str, Any]]:
    """The effects as JSON values, with every pair."""
    return [asdict(effect) for effect in effects]
