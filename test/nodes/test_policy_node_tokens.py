"""The policy node with an autoregressive checkpoint: what cannot be decoded is that query's error alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image, JointState
from small_checkpoints import small_options
from vla_simd_ros.msg import ActionChunk, QueryTiming

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, make_checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import Policy
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.messages import stamp
from vla_simd_ros.nodes.policy_node import PolicyNode

JOINTS = ["pan", "lift", "grip"]
MS = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("checkpoint") / "impact_tokens"
    options = small_options(
        "impact_tokens", cameras=(Camera("front", 40, 56),), state_dim=3, action_dim=3, seed=3
    )
    make_checkpoint("impact_tokens", made, options)
    return made


class Spoiling(SimdExecutor):
    """The engine, whose scores the test may replace."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.spoil: Callable[[Array], Array] | None = None

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Any:
        return _Spoiled(super().load(compiled, beside.inner if isinstance(beside, _Spoiled) else None), self)


class _Spoiled:
    def __init__(self, inner: Executable, executor: Spoiling) -> None:
        self.inner, self._executor = inner, executor

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self.inner.run(lifetime, inputs)
        if self._executor.spoil is not None and "scores" in outputs:
            outputs["scores"] = self._executor.spoil(outputs["scores"])
        return outputs

    def tensor(self, tensor: Tensor) -> Array:
        return self.inner.tensor(tensor)


class Robot:
    """An active node with one camera and joint states, both played by the test."""

    def __init__(self, ros: Any, folder: Path, **parameters: Any) -> None:
        self.ros = ros
        self.executor = Spoiling()
        self.policy = Policy(load_checkpoint(folder), self.executor)
        self.node = ros.add(
            lambda **options: PolicyNode(load=lambda folder, **_: self.policy, **options),
            checkpoint=str(folder), joints=JOINTS, instruction="pick it up", **parameters,
        )  # fmt: skip
        assert self.node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        self.chunks: list[ActionChunk] = ros.collect(ActionChunk, "action_chunk", qos.CHUNK)
        self.diagnostics: list[DiagnosticArray] = ros.collect(DiagnosticArray, "/diagnostics", qos.STATE)
        self._camera = ros.publisher(Image, "camera/front/image_raw", qos.STATE)
        self._joints = ros.publisher(JointState, "joint_states", qos.STATE)
        assert self.node.trigger_activate() == TransitionCallbackReturn.SUCCESS

    def observe(self) -> None:
        """The next observation, always of the same scene."""
        self.ros.set_time(self.ros.now_ns + 33 * MS)
        state = JointState(name=JOINTS, position=[0.1, 0.2, 0.3])
        frame = Image(height=40, width=56, encoding="rgb8", step=168, data=bytes(range(240)) * 28)
        state.header.stamp = frame.header.stamp = stamp(self.ros.now_ns)
        self._joints.publish(state)
        self.ros.settle(3)
        self._camera.publish(frame)

    def next_chunk(self) -> ActionChunk:
        count = len(self.chunks)
        self.observe()
        self.ros.spin_until(lambda: len(self.chunks) > count, "a chunk")
        return self.chunks[-1]

    def await_diagnostic(self, words: str) -> None:
        self.diagnostics.clear()
        self.ros.spin_until(
            lambda: any(words in s.message for array in self.diagnostics for s in array.status),
            f"a diagnostic with '{words}', last: {self.diagnostics[-1:]}",
        )


def test_every_decoder_gives_the_same_chunk_and_tells_how(ros: Any, folder: Path) -> None:
    robot = Robot(ros, folder, decoder="autoregressive")
    first = robot.next_chunk()
    count = robot.policy.action_tokens.count  # type: ignore[union-attr]
    assert (first.timing.passes, first.timing.tokens, first.timing.block) == (count, count, 1)
    assert first.timing.exit == QueryTiming.COMPLETE and first.timing.exact and not first.unconverged
    assert list(first.timing.fixed_tokens) == [1] * count
    assert first.timing.mean_tokens_per_second >= first.timing.min_tokens_per_second > 0.0
    for decoder in ("jacobi", "auto", "early_exit"):
        changes = [Parameter("decoder", value=decoder), Parameter("sigma", value=1.0)]
        assert robot.node.set_parameters_atomically(changes).successful
        chunk = robot.next_chunk()
        assert chunk.timing.decoder == decoder and chunk.timing.exact
        assert list(chunk.actions) == list(first.actions)
        assert sum(chunk.timing.fixed_tokens) == count


def not_a_number(scores: Array) -> Array:
    return np.full_like(scores, np.nan)


def the_first_token(scores: Array) -> Array:
    """The one that is read first and never is an action."""
    scores = scores.copy()
    scores[:, -1] = 1e6
    return scores


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (not_a_number, "the policy failed: the scores of token 0 are not finite"),
        (the_first_token, "at place 0 is no action, expected one of the bins 0 to"),
    ],
)
@pytest.mark.parametrize("decoder", ["autoregressive", "jacobi"])
def test_scores_that_say_nothing_are_reported_and_the_next_query_works(
    ros: Any, folder: Path, decoder: str, spoil: Callable[[Array], Array], words: str
) -> None:
    robot = Robot(ros, folder, decoder=decoder)
    expected = list(robot.next_chunk().actions)
    robot.executor.spoil = spoil
    robot.observe()
    robot.await_diagnostic(words)
    assert len(robot.chunks) == 1
    robot.executor.spoil = None
    assert list(robot.next_chunk().actions) == expected


def test_a_prefix_longer_than_the_context_is_reported_and_the_next_query_works(
    ros: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = Robot(ros, folder, decoder="jacobi")
    expected = list(robot.next_chunk().actions)
    with monkeypatch.context() as patch:
        patch.setattr(type(robot.policy.action_tokens), "prefix_rows", lambda *_: 100_000)
        robot.observe()
        robot.await_diagnostic("index 100000 at position 0 is outside the table of")
    assert len(robot.chunks) == 1
    assert list(robot.next_chunk().actions) == expected


def test_a_deadline_withholds_a_chunk_or_publishes_it_marked(ros: Any, folder: Path) -> None:
    """One pass is always made; it decodes one token, which is no row of three joints."""
    robot = Robot(ros, folder, decoder="autoregressive", query_deadline_ms=1e-6)
    robot.observe()
    robot.await_diagnostic("a query had not converged after 1 passes, when its deadline came")
    assert robot.chunks == []
    changes = [Parameter("decoder", value="jacobi"), Parameter("accept_unconverged", value=True)]
    assert robot.node.set_parameters_atomically(changes).successful
    chunk = robot.next_chunk()
    assert chunk.unconverged and chunk.timing.exit == QueryTiming.DEADLINE and not chunk.timing.exact
    assert chunk.horizon == len(chunk.actions) // 3 > 0
    robot.node.set_parameters([Parameter("query_deadline_ms", value=0.0)])
    assert not robot.next_chunk().unconverged
