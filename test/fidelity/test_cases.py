from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from iterating_policy import ROWS, WIDTH, IteratingPolicy

from vla_simd_ros import inference
from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import InputError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity import cases as module
from vla_simd_ros.fidelity import check, observations, programs
from vla_simd_ros.fidelity.cases import Case, random_cases
from vla_simd_ros.fidelity.check import compare, trace_tensors
from vla_simd_ros.fidelity.int8_error import int8_error
from vla_simd_ros.fidelity.trace import first_departure
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.inference import Prefix


@pytest.fixture
def iterating(small: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """A checkpoint of a camera of 4x4 and a state of 2, from which the small iterating policy is read."""
    for user in (inference, module, observations, programs):
        monkeypatch.setattr(user, "define_policy", lambda checkpoint: IteratingPolicy(observation_steps=2))
    return small


def test_cases_of_a_policy_of_one_pass(blind: Checkpoint) -> None:
    cases = random_cases(blind, 2, 0)
    assert all(case.noise is None and case.num_steps is None for case in cases)
    with pytest.raises(InputError, match="'act' has no solver, it takes no num_steps"):
        random_cases(blind, 2, 0, num_steps=3)


def test_cases_of_a_policy_that_iterates(iterating: Checkpoint) -> None:
    cases = random_cases(iterating, 3, 0)
    assert [case.num_steps for case in cases] == [4, 4, 4]
    noise = [case.noise for case in cases if case.noise is not None]
    assert [sample.shape for sample in noise] == [(ROWS, WIDTH)] * 3
    assert np.abs(noise[0] - noise[1]).max() > 0.1
    again, other = (random_cases(iterating, 2, 0, noise_seed=seed, num_steps=6) for seed in (0, 1))
    np.testing.assert_array_equal(again[1].noise, noise[1])
    assert again[0].num_steps == 6
    assert np.abs(np.subtract(other[0].noise, noise[0])).max() > 0.1


def test_the_engine_agrees_step_by_step(iterating: Checkpoint) -> None:
    cases = random_cases(iterating, 3, 0, num_steps=6)
    report = compare(iterating, SimdExecutor(threads=1), "float64", "", cases, print, 1e-5)
    assert report.passed and report.error.absolute < 1e-5
    entries = trace_tensors(iterating, SimdExecutor(threads=1), "", cases[0])
    assert first_departure(entries) is None
    steps = [entry.step for entry in entries]
    first = steps.index(1)
    assert steps[:first] == [None] * first and first > 0
    each = (len(steps) - first) // 6
    assert steps[first:] == [step for step in range(1, 7) for _ in range(each)]
    assert entries[first].name.endswith(" @1")


def test_one_noise_for_both_sides(iterating: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it another one for the reference, the comparison would fail."""
    cases = random_cases(iterating, 2, 0)
    make = check.make_reference

    class Other:
        def __init__(self, *args: object) -> None:
            self._inner = make(*args)  # type: ignore[arg-type]

        def predict(self, case: Case) -> np.ndarray:
            return self._inner.predict(replace(case, noise=-np.asarray(case.noise)))

    monkeypatch.setattr(check, "make_reference", Other)
    report = compare(iterating, SimdExecutor(threads=1), "float64", "", cases, print, 1e-5)
    assert not report.passed and report.error_float64.relative > 1e-2


def test_layers_of_steps_in_int8(iterating: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def groups(ops: Sequence[Op]) -> dict[str, list[Op]]:
        return {"step": [op for op in ops if op.kind == "linear" and op.block == "step"]}

    monkeypatch.setattr("vla_simd_ros.fidelity.int8_error.int8_groups", groups)
    monkeypatch.setattr("vla_simd_ros.fidelity.int8_error.choose_int8", lambda *args: ("step",))
    cases = random_cases(iterating, 2, 0)
    report = int8_error(iterating, ReferenceExecutor(), "step", "float64", "", cases, print)
    assert report.fp32.absolute == 0
    assert 1e-4 < report.together.from_reference.rms < 0.2


def test_inputs_that_steps_read_are_there_in_a_trace(
    small: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in (inference, module, observations, programs):
        monkeypatch.setattr(user, "define_policy", lambda checkpoint: IteratingPolicy(prefix=True))
    (case,) = random_cases(small, 1, 0)
    given = replace(case, prefix=Prefix(np.ones((4, 2), np.float32), 1, horizon=4))
    free, drawn = (trace_tensors(small, SimdExecutor(threads=1), "", each) for each in (case, given))
    assert first_departure(drawn) is None
    assert len(free) == len(drawn)
    report = compare(small, SimdExecutor(threads=1), "float64", "", [given], print, 1e-5)
    assert report.passed
    assert report.largest != compare(small, SimdExecutor(threads=1), "float64", "", [case], print).largest
