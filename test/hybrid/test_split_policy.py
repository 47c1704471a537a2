"""Both parts of every policy against the whole, one after the other and through the pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case, random_cases
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.graph.partition import cut_points
from vla_simd_ros.hybrid.frame_pipeline import FramePipeline, FrameResult
from vla_simd_ros.hybrid.split_executor import SplitExecutor
from vla_simd_ros.hybrid.split_policy import SplitPolicy
from vla_simd_ros.inference import Policy
from vla_simd_ros.policies.registry import POLICY_TYPES
from vla_simd_ros.request import Request

INSTRUCTION = "pick up the red cube"


class Small:
    """A small policy, whole and cut after any block."""

    def __init__(self, kind: str, folder: Path) -> None:
        make_checkpoint(kind, folder, small_options(kind))
        checkpoint = load_checkpoint(folder)
        self.whole = Policy.load(folder, threads=1)
        self.whole.set_instruction(INSTRUCTION)
        self.checkpoint = checkpoint
        self.cases = random_cases(checkpoint, 3, seed=1)
        self.cuts = cut_points(instruct(checkpoint, INSTRUCTION).compiled)
        self.split = self.policy(SimdExecutor(threads=1), self.cuts)

    def middle(self) -> str:
        """A cut half-way."""
        return self.cuts[len(self.cuts) // 2]

    def policy(self, prefix: Executor, cuts: Sequence[str]) -> Policy:
        """On two executors, the second of which is the engine."""
        made = Policy(self.checkpoint, SplitExecutor(prefix, SimdExecutor(threads=1), cuts))
        made.set_instruction(INSTRUCTION)
        return made

    def request(self, case: Case) -> Request:
        return self.split.request(case.observation, noise=case.noise)

    def expected(self, index: int) -> Array:
        case = self.cases[index]
        return self.whole.query(case.observation, noise=case.noise).actions


@pytest.fixture(scope="module", params=POLICY_TYPES)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(request.param, tmp_path_factory.mktemp("checkpoint") / "policy")


def test_after_every_block_the_parts_give_the_actions_of_the_whole(small: Small) -> None:
    expected = [small.expected(index) for index in range(2)]
    for after in small.cuts:
        policy = SplitPolicy(small.split, after)
        for case, actions in zip(small.cases, expected, strict=False):
            np.testing.assert_array_equal(policy.suffix(policy.prefix(small.request(case))), actions)


def test_another_executor_for_the_prefix_gives_nearly_the_same(small: Small) -> None:
    after = small.middle()
    policy = SplitPolicy(small.policy(ReferenceExecutor(np.float32), [after]), after)
    actions = policy.suffix(policy.prefix(small.request(small.cases[0])))
    assert distance(actions, small.expected(0)).relative < 1e-4


@pytest.mark.needs_torch
def test_after_every_other_block_pytorch_can_have_the_prefix(small: Small) -> None:
    pytest.importorskip("torch")
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    cuts = small.cuts[::2]
    split = small.policy(TorchExecutor(threads=1), cuts)
    for after in cuts:
        policy = SplitPolicy(split, after)
        actions = policy.suffix(policy.prefix(small.request(small.cases[0])))
        assert distance(actions, small.expected(0)).relative < 1e-4, after


def test_frames_overlap_without_a_change_of_their_actions(small: Small) -> None:
    policy = SplitPolicy(small.split, small.middle())
    results: list[FrameResult] = []
    came = threading.Condition()

    def keep(result: FrameResult) -> None:
        with came:
            results.append(result)
            came.notify()

    def no(*_: object) -> None:
        raise AssertionError("no frame is dropped where each waits for the one before")

    pipeline = FramePipeline(
        policy.prefix,
        policy.suffix,
        on_result=keep,
        on_drop=no,
        on_failure=no,
        clock=time.monotonic,
        stall_s=60.0,
    )
    for number, case in enumerate(small.cases, 1):
        pipeline.submit(small.request(case))
        with came:
            assert came.wait_for(lambda wanted=number: len(results) == wanted, 60.0)
    pipeline.close()
    for index, result in enumerate(results):
        np.testing.assert_array_equal(result.value, small.expected(index))
