from __future__ import annotations

import pytest
from iterating_policy import IteratingPolicy
from spelling_policy import SpellingPolicy

from vla_simd_ros.benchmarks import setting_runs
from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.consistency import LEAST_PAIRS
from vla_simd_ros.benchmarks.interleave import Plan
from vla_simd_ros.benchmarks.setting_runs import SettingRuns
from vla_simd_ros.executors.settings import EngineSettings

PLAN = Plan(LEAST_PAIRS, 2)
BASE = EngineSettings(threads=2)


def runs(fake: str = "Faithful", plan: Plan = PLAN) -> SettingRuns:
    observations = [1.0, 2.0]
    return SettingRuns("", "go", observations, plan, 1, lambda _: None, f"fake_backends:{fake}")  # type: ignore[arg-type]


def test_each_block_is_a_pair() -> None:
    with runs() as session:
        verdict, pairs = session.compare(BASE, BASE.but(threads=1))
        assert verdict.pairs == len(pairs) == LEAST_PAIRS
        assert all(pair.ratio > 0 for pair in pairs)
        assert session.details(BASE)["threads"] == "2"
        assert session.details(BASE.but(threads=1))["threads"] == "1"


def test_only_the_processes_used_last_are_kept() -> None:
    with runs() as session:
        for threads in (1, 3, 4, 5):
            session.compare(BASE, BASE.but(threads=threads))
        kept = list(session._runners)
        assert BASE in kept and len(kept) == 3
        processes = [runner._process for runner in session._runners.values()]
    assert not any(process.is_alive() for process in processes)


def test_tokens_are_decoded_in_the_same_way_in_every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    for policy, expected in ((SpellingPolicy(), "autoregressive"), (IteratingPolicy(), "auto")):
        monkeypatch.setattr(setting_runs, "define_policy", lambda checkpoint, policy=policy: policy)
        assert setting_runs.steady_decoder(None).decoder == expected  # type: ignore[arg-type]


def test_settings_that_cannot_be_had() -> None:
    with runs("Impossible") as session, pytest.raises(BenchmarkError, match="needs a package"):
        session.details(BASE)


def test_too_few_blocks() -> None:
    with pytest.raises(ValueError, match=f"expected at least {LEAST_PAIRS}"):
        runs(plan=Plan(LEAST_PAIRS - 1, 2))
