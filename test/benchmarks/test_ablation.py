from __future__ import annotations

import json

import pytest

from vla_simd_ros.benchmarks.ablation import ablation_table, contrasts, effects_json, run_ablation
from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.consistency import Pair, Verdict, judge
from vla_simd_ros.executors.settings import EngineSettings, settings

BASE = EngineSettings()


class FakeRuns:
    """Times that depend on the settings: passive waiting is slow, schedules are equal, and static fails."""

    def __init__(self, threads: int = 4) -> None:
        self.threads = threads
        self.asked: list[tuple[EngineSettings, EngineSettings]] = []

    def details(self, settings: EngineSettings) -> dict[str, str]:
        return {"threads": str(settings.threads or self.threads)}

    def compare(self, a: EngineSettings, b: EngineSettings) -> tuple[Verdict, list[Pair]]:
        self.asked.append((a, b))
        if a.convolution != b.convolution:
            raise BenchmarkError("runner 'vla_simd': not on this machine")
        time_a, time_b = (1.5 if settings.waiting == "passive" else 1.0 for settings in (a, b))
        pairs = [Pair(time_a, time_b, time_b, time_a)] * 6
        return judge(pairs), pairs


def test_there_are_eleven_settings_and_each_changes_one() -> None:
    runs = FakeRuns()
    effects = run_ablation(BASE, runs, lambda _: None)  # type: ignore[arg-type]
    assert len(effects) == 11
    for a, b in runs.asked:
        different = {name for name in settings() if getattr(a, name) != getattr(b, name)}
        assert len(different) == 1
    assert {c.name for c in contrasts(4)}.issuperset({"threads", "waiting", "convolution", "schedule"})
    assert ("direct", "flat") in [(a.convolution, b.convolution) for a, b in runs.asked]


def test_effects_and_reasons() -> None:
    effects = {e.contrast.name: e for e in run_ablation(BASE, FakeRuns(), lambda _: None)}  # type: ignore[arg-type]
    waiting = effects["waiting"].verdict
    assert waiting is not None and waiting.faster == "B"
    assert effects["schedule"].verdict is not None and effects["schedule"].verdict.faster == "="
    assert effects["convolution"].verdict is None
    assert effects["convolution"].reason == "runner 'vla_simd': not on this machine"
    assert (effects["threads"].contrast.a, effects["threads"].contrast.b) == (4, 2)


def test_one_core_has_no_choice_of_threads() -> None:
    effects = run_ablation(BASE, FakeRuns(threads=1), lambda _: None)  # type: ignore[arg-type]
    (threads,) = [e for e in effects if e.contrast.name == "threads"]
    assert threads.reason == "this machine has one core"


def test_a_setting_that_the_engine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vla_simd_ros.benchmarks.ablation.settings", lambda: {"waiting": None})
    effects = run_ablation(BASE, FakeRuns(), lambda _: None)  # type: ignore[arg-type]
    assert [e.contrast.name for e in effects if not e.reason] == ["waiting"]
    assert effects[0].reason == "the engine has no choice here"


def test_the_table_and_the_json() -> None:
    effects = run_ablation(BASE, FakeRuns(), lambda _: None)  # type: ignore[arg-type]
    rows = {row.split("|")[1].strip(): row for row in ablation_table(effects) if row.startswith("|")}
    assert "| B -33.3 |" in rows["Thread waiting"] and "passive / active" in rows["Thread waiting"]
    assert rows["Thread schedule"].split("|")[3].strip() == "="
    assert rows["Convolution"].split("|")[3].strip() == "n/a"
    assert "- Convolution: runner 'vla_simd': not on this machine" in ablation_table(effects)
    loaded = json.loads(json.dumps(effects_json(effects)))
    (waiting,) = [e for e in loaded if e["contrast"]["name"] == "waiting"]
    assert len(waiting["pairs"]) == 6 and waiting["verdict"]["faster"] == "B"
