"""Prediction against what the nodes' own parts do: runner and control loop on a simulated clock.

Nothing of the prediction's formulas is used here: frames arrive, the policy takes its time, chunks fly, and
the control loop executes rows at its ticks. The counts must lie where the prediction says.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")

from vla_simd_ros.control.blending import Replace
from vla_simd_ros.control.chunk import ChunkRejected, RawChunk
from vla_simd_ros.control.control_loop import ActionKind, ControlLoop, LoopConfig, Starvation
from vla_simd_ros.control.delay_distribution import delay_distribution
from vla_simd_ros.control.frame_schedule import FrameSchedule, predict_supply
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.control.query_pacer import QueryPacer
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.inference import Query, Timing
from vla_simd_ros.nodes.episodes import Episode
from vla_simd_ros.nodes.observations import Observed
from vla_simd_ros.nodes.param import checked
from vla_simd_ros.nodes.policy_runner import PolicyRunner, Prediction
from vla_simd_ros.nodes.query_decoding import DECODING_PARAMETERS, QueryDecoding
from vla_simd_ros.nodes.query_sampling import Sampled
from vla_simd_ros.nodes.query_worker import FrameSet

MS = 1_000_000
PERIOD = 33_333_333
START = 1_000_000 * MS
JOINTS = ("pan", "lift")
POLICY_NS, READY_NS, TRANSPORT_NS = 9 * MS, 4 * MS, 2 * MS
CHUNK = 40


class Robot:
    """The clock, the control loop that ticks as it moves, and chunks on their way to it."""

    def __init__(self, mode: Mode, phase_ns: int) -> None:
        limits = JointLimits(np.full(2, -2.0), np.full(2, 2.0), np.full(2, 99.0), np.full(2, 9999.0))
        self.loop = ControlLoop(
            LoopConfig(
                JOINTS, ActionKind.POSITION, limits, PERIOD, mode, Replace(), Starvation.HOLD,
                200 * MS, 10**12, 10**12, 10**12, 20 * MS, 10**12, 0.1,
            )
        )  # fmt: skip
        self.loop.start_epoch(1)
        self.loop.joint_state(np.zeros(2), START)
        self.now = START
        self._next_tick = START + phase_ns
        self._flying: list[tuple[int, RawChunk]] = []

    def move(self, until: int) -> None:
        """Let time pass."""
        while self._next_tick <= until:
            self.now = self._next_tick
            while self._flying and self._flying[0][0] <= self.now:
                arrival, raw = self._flying.pop(0)
                try:
                    self.loop.chunk(raw, arrival)
                except ChunkRejected as rejected:
                    assert rejected.reason.value == "expired"
            self.loop.tick(self.now)
            self._next_tick += PERIOD
        self.now = until

    def publish(self, prediction: Prediction, episode: Episode, episode_ms: float) -> int:
        """What the policy node does with a prediction."""
        self.sequence = getattr(self, "sequence", 0) + 1
        raw = RawChunk(
            stamp_ns=prediction.stamp_ns,
            sequence=self.sequence,
            epoch=episode.epoch,
            action_names=JOINTS,
            step_period=PERIOD * 1e-9,
            horizon=CHUNK,
            window=self.window,
            actions=prediction.rows,
            query_ms=1.0,
        )
        self._flying.append((self.now + TRANSPORT_NS, raw))
        return self.sequence

    window = CHUNK


class SimulatedPolicy:
    """Takes its time on the robot's clock."""

    spec = SimpleNamespace(chunk_size=CHUNK, max_instruction_tokens=0, type="simulated")
    action_tokens = None
    instruction_truncated = False

    def __init__(self, robot: Robot) -> None:
        self._robot = robot

    def query(self, observation: Any) -> Any:
        self._robot.move(self._robot.now + POLICY_NS)
        timing = Timing(preprocess_ms=0.0, query_ms=9.0, step_ms=0.0, postprocess_ms=0.0, total_ms=9.0)
        return Query(np.zeros((CHUNK, 2), np.float32), timing)


class SimulatedDelay:
    """The injected delay, on the robot's clock."""

    def __init__(self, robot: Robot, text: str, seed: int) -> None:
        self._robot = robot
        self._distribution = delay_distribution(text)
        self._rng = np.random.default_rng(seed)

    def wait(self) -> None:
        self._robot.move(self._robot.now + round(self._distribution.draw(self._rng, 1)[0] * 1e9))


def drive(delay: str, mode: Mode, window: int, seconds: float, seed: int) -> dict[str, int]:
    """Counts of a run, from the first executed row on."""
    robot = Robot(mode, int(np.random.default_rng(seed).integers(PERIOD)))
    robot.window = window
    settings: Any = SimpleNamespace(
        action_names=JOINTS, action_units=SimpleNamespace(to_robot=lambda rows: rows)
    )
    observations: Any = SimpleNamespace(observe=lambda frames, now: Observed(cast(Any, None), (), 0))
    sampling: Any = SimpleNamespace(draw=lambda: Sampled({}))
    injected: Any = SimulatedDelay(robot, delay, seed)
    policy = SimulatedPolicy(robot)
    runner = PolicyRunner(
        policy,
        settings,
        observations,
        sampling,
        QueryDecoding(policy, checked(DECODING_PARAMETERS, {})),
        QueryPacer(QueryPacing.CONTINUOUS, 0),
        lambda: robot.now,
        robot.publish,
        pytest.fail,
        pytest.fail,
        injected,
    )
    episode = Episode(1, None)
    before: dict[str, int] | None = None
    frame, end = -1, START + round((seconds + 3) * 1e9)
    while robot.now < end:
        newest = (robot.now - READY_NS - START) // PERIOD
        frame = max(newest, frame + 1)
        robot.move(max(robot.now, START + frame * PERIOD + READY_NS))
        result = runner.query(FrameSet(START + frame * PERIOD, robot.now, robot.now, {}))
        assert result is not None
        runner.deliver(result, episode, 0.0)
        line = robot.loop.timeline
        if before is None and line.executed_steps:
            before = counts(line)
            end = robot.now + round(seconds * 1e9)
    assert before is not None
    return {name: value - before[name] for name, value in counts(robot.loop.timeline).items()}


def counts(line: Any) -> dict[str, int]:
    return {"executed": line.executed_steps, "starved": line.starved_steps, "stale": line.stale_rows}


@pytest.mark.parametrize(
    ("delay", "mode", "window"),
    [
        ("lognormal:180,0.3", Mode.TIME_ALIGNED, 13),
        ("lognormal:180,0.3", Mode.LAGGED, 7),
        ("lognormal:60,0.6", Mode.TIME_ALIGNED, 8),
        ("fixed:200", Mode.TIME_ALIGNED, 13),
        ("fixed:400", Mode.LAGGED, 8),
        ("fixed:100", Mode.TIME_ALIGNED, 40),
    ],
)
def test_starved_steps_and_stale_rows_lie_where_the_prediction_says(
    delay: str, mode: Mode, window: int
) -> None:
    seconds = 60.0
    distribution = delay_distribution(delay)
    predicted = predict_supply(
        lambda rng, count: distribution.draw(rng, count) + POLICY_NS * 1e-9,
        FrameSchedule(30.0, 30.0, window, 1 / 30.0, READY_NS * 1e-9, TRANSPORT_NS * 1e-9),
        mode,
        seconds,
    )
    measured = [drive(delay, mode, window, seconds, seed) for seed in range(5)]
    for name, expected in (("starved", predicted.starved), ("stale", predicted.stale)):
        # A run ends with a query, so its counts are of a second more at the most; 95 % of runs are covered.
        slack = 0.02 * expected.high + 2
        inside = [expected.low - slack <= run[name] <= expected.high + slack for run in measured]
        assert sum(inside) >= 4, (name, expected, measured)
