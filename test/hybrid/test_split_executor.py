"""Two executors as one: a policy on them, cut after any of its blocks, is the policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.executors.base import Cancelled, Executable, Late
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.partition import cut_points
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.hybrid.split_executor import SplitExecutable, SplitExecutor
from vla_simd_ros.inference import Policy

KINDS = ("impact", "smolvla")


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("checkpoint") / request.param
    make_checkpoint(request.param, path, small_options(request.param))
    return path


def split(folder: Path) -> tuple[SplitExecutor, list[str]]:
    possible = cut_points(instruct(load_checkpoint(folder), "go").compiled)
    cuts = [possible[-1], possible[0], possible[len(possible) // 2]]
    return SplitExecutor(SimdExecutor(threads=1), SimdExecutor(threads=1), cuts), cuts


def test_a_policy_on_it_is_the_policy(folder: Path) -> None:
    """For instructions of two lengths, of which the second shares memory with the first."""
    executor, _ = split(folder)
    assert executor.threads == 2
    assert " + " in executor.isa
    whole, cut = Policy.load(folder, threads=1), Policy(load_checkpoint(folder), executor)
    (case,) = random_cases(load_checkpoint(folder), 1, seed=3)
    for text in ("go", "pick up the red cube", "go"):
        for policy in (whole, cut):
            policy.set_instruction(text)
        expected = whole.query(case.observation, noise=case.noise).actions
        np.testing.assert_array_equal(cut.query(case.observation, noise=case.noise).actions, expected)


def test_the_cut_moves_from_frame_to_frame(folder: Path) -> None:
    """Also between the two stages of a frame, which keeps its own cut."""
    executor, cuts = split(folder)
    policy = Policy(load_checkpoint(folder), executor)
    policy.set_instruction("pick up the red cube")
    whole = Policy.load(folder, threads=1)
    whole.set_instruction("pick up the red cube")
    executable = policy.executable
    assert isinstance(executable, SplitExecutable)
    cases = random_cases(load_checkpoint(folder), 3, seed=4)
    requests = [policy.request(case.observation, noise=case.noise) for case in cases]
    crossed = [
        executable.prefix(after, request.values) for after, request in zip(cuts, requests, strict=True)
    ]
    for after, request, values, case in zip(cuts, requests, crossed, cases, strict=True):
        outputs = executable.suffix(after, values)
        found = (
            outputs["action"] if request.plan is None else policy.solve(executable.steps(after), request.plan)
        )
        np.testing.assert_array_equal(found, whole.query(case.observation, noise=case.noise).actions)


def test_a_cut_that_cannot_be_is_refused(folder: Path) -> None:
    executor = SplitExecutor(SimdExecutor(threads=1), SimdExecutor(threads=1), ["nowhere"])
    with pytest.raises(GraphError, match="cannot be cut after 'nowhere'"):
        executor.load(instruct(load_checkpoint(folder), "go").compiled)


def test_both_sides_are_cancelled_and_resumed(folder: Path) -> None:
    executor, _ = split(folder)
    policy = Policy(load_checkpoint(folder), executor)
    policy.set_instruction("go")
    observation = policy.blank_observation()
    executor.cancel()
    with pytest.raises(Cancelled):
        policy.query(observation)
    executor.resume()
    assert np.isfinite(policy.query(observation).actions).all()


def test_tensors_of_either_side_are_there(folder: Path) -> None:
    executor, cuts = split(folder)
    policy = instruct(load_checkpoint(folder), "go")
    executable = executor.load(policy.compiled)
    (case,) = random_cases(load_checkpoint(folder), 1, seed=3)
    policy.run(executable, case)
    boundary = executable.partition(cuts[0]).boundary
    assert executable.tensor(boundary[0]).shape == boundary[0].shape
    lifetime = Lifetime.STEP if policy.sampler else Lifetime.QUERY
    (action,) = (t for name, t in policy.compiled.programs[lifetime].outputs.items() if name == "action")
    assert np.isfinite(executable.tensor(action)).all()
    with pytest.raises(KeyError):
        executable.tensor(policy.compiled.programs[Lifetime.QUERY].ops[0].output)


class Sending:
    """A side's programs, whose results are waited for once they are looked at."""

    def __init__(self, inner: Executable) -> None:
        self._inner = inner
        self._results: dict[str, Array] = {}
        self.waited = 0

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._inner.run(lifetime, inputs)

    def tensor(self, tensor: Tensor) -> Array:
        return self._inner.tensor(tensor)

    def start(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> Late:
        self._results = self.run(lifetime, inputs)
        return self

    def again(self, lifetime: Lifetime) -> None:
        raise AssertionError("a frame is computed once")

    def deliver(self, lifetime: Lifetime) -> Late:
        raise AssertionError("a frame is delivered once")

    def wait(self) -> dict[str, Array]:
        self.waited += 1
        return self._results


class SendingExecutor(SimdExecutor):
    def __init__(self) -> None:
        super().__init__(threads=1)
        self.loaded: list[Sending] = []

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Sending:  # type: ignore[override]
        self.loaded.append(Sending(super().load(compiled)))
        return self.loaded[-1]


def test_the_second_side_waits_for_what_crosses_and_the_first_does_not(folder: Path) -> None:
    _, (after, *_) = split(folder)
    first = SendingExecutor()
    policy = Policy(load_checkpoint(folder), SplitExecutor(first, SimdExecutor(threads=1), [after]))
    policy.set_instruction("go")
    executable = policy.executable
    assert isinstance(executable, SplitExecutable)
    (case,) = random_cases(load_checkpoint(folder), 1, seed=3)
    request = policy.request(case.observation, noise=case.noise)
    crossing = executable.prefix(after, request.values)
    (sending,) = first.loaded
    crossed = [tensor.name for tensor in executable.partition(after).boundary]
    assert sending.waited == 0 and crossed
    executable.suffix(after, crossing)
    assert sending.waited > 0
    assert set(crossed) | set(request.values) == set(crossing) and len(crossing) == len(set(crossing))
    for name, value in request.values.items():
        assert crossing[name] is value
