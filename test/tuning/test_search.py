from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.consistency import Verdict
from vla_simd_ros.executors.settings import EngineSettings, settings
from vla_simd_ros.tuning.search import Step, alternatives, search

START = EngineSettings(threads=4)
TRIED = {"threads": (3, 2), "waiting": ("passive",)}
TIMES = {1: 4.0, 2: 2.0, 3: 3.0, 4: 3.0}


def time_of(settings: EngineSettings) -> float:
    return TIMES[settings.threads] * (0.5 if settings.waiting == "passive" else 1.0)


def compare(a: EngineSettings, b: EngineSettings) -> Verdict:
    effect = time_of(b) / time_of(a) - 1
    return Verdict(effect, 0.0, 6, 0, 6, "B" if effect < 0 else "A" if effect > 0 else "=")


def always() -> bool:
    return True


def test_values_that_are_faster_are_kept() -> None:
    told: list[Step] = []
    found, steps = search(START, TRIED, compare, always, told.append)
    assert (found.threads, found.waiting) == (2, "passive")
    assert [step.kept for step in steps] == [False, True, True]
    assert told == steps
    assert [str(step) for step in steps] == [
        "threads: 3 instead of 4: no consistent difference (time +0.0 %, drift 0.0 %)",
        "threads: 2 instead of 4: faster, kept (time -33.3 %, drift 0.0 %)",
        "waiting: passive instead of active: faster, kept (time -50.0 %, drift 0.0 %)",
    ]


def test_a_slower_value_is_not_kept_and_one_that_is_there_not_tried() -> None:
    found, steps = search(START, {"threads": (1, 4)}, compare, always, lambda _: None)
    assert found == START
    assert [str(step) for step in steps] == ["threads: 1 instead of 4: slower (time +33.3 %, drift 0.0 %)"]


def test_a_value_that_cannot_be_had_is_told_and_the_search_goes_on() -> None:
    def failing(a: EngineSettings, b: EngineSettings) -> Verdict:
        if b.threads == 3:
            raise BenchmarkError("runner 'vla_simd': no memory")
        return compare(a, b)

    tried = {"threads": (3, -1, 2)}
    found, steps = search(START, tried, failing, always, lambda _: None)
    assert found.threads == 2
    assert [step.verdict is None for step in steps] == [True, True, False]
    assert str(steps[0]).endswith("no memory") and "expected 0 to" in str(steps[1])


def test_what_the_time_does_not_allow_is_told() -> None:
    answers = iter([True, False, False])
    found, steps = search(START, TRIED, compare, lambda: next(answers), lambda _: None)
    assert found == START
    assert [step.reason for step in steps] == ["", "not tried, the time was up", "not tried, the time was up"]


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_alternatives_are_settings_that_there_are(threads: int) -> None:
    tried = alternatives(threads)
    assert set(tried) <= set(settings())
    assert all(0 < count < threads for count in tried.get("threads", ()))
    assert ("threads" in tried) == (threads > 1)
    for name, values in tried.items():
        for value in values:
            EngineSettings().but(**{name: value})
