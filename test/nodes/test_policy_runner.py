"""The times of a query, on a clock that this test moves: the stages add up to what passed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from vla_simd_ros.control.latency_budget import latency_budget
from vla_simd_ros.control.query_pacer import QueryPacer
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.inference import Observation, Query, Timing
from vla_simd_ros.nodes import policy_runner
from vla_simd_ros.nodes.observations import Observed
from vla_simd_ros.nodes.param import checked
from vla_simd_ros.nodes.policy_runner import PolicyRunner, Prediction
from vla_simd_ros.nodes.query_decoding import DECODING_PARAMETERS, QueryDecoding
from vla_simd_ros.nodes.query_sampling import Sampled
from vla_simd_ros.nodes.query_worker import FrameSet

MS = 1_000_000
CAPTURE = 1_000_000 * MS


class Clock:
    """Both clocks that a query is measured on."""

    def __init__(self) -> None:
        self.now_ns = CAPTURE

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, ms: float) -> None:
        self.now_ns += round(ms * MS)


class World:
    """Policy, observations and units that take their time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.spec = SimpleNamespace(chunk_size=2, type="fake")
        self.action_tokens = None
        self.instruction_truncated = False

    def observe(self, frames: FrameSet, now_ns: int) -> Observed:
        self._clock.spend(4.0)
        return Observed(Observation({}, np.zeros(1)), (CAPTURE, CAPTURE + 5), CAPTURE + 1)

    def query(self, observation: Observation) -> Query:
        for ms in (1.0, 60.0, 9.0, 0.5):
            self._clock.spend(ms)
        return Query(np.zeros((2, 1), np.float32), Timing(1.0, 60.0, 9.0, 0.5, 70.5))

    def to_robot(self, rows: Any) -> Any:
        self._clock.spend(2.5)
        return rows


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(policy_runner, "time", SimpleNamespace(perf_counter=lambda: made.now_ns * 1e-9))
    return made


def predict(clock: Clock) -> Prediction:
    world = World(clock)
    settings: Any = SimpleNamespace(action_units=world, action_names=("pan",))
    pacer = QueryPacer(QueryPacing.CONTINUOUS, 0)
    sampling: Any = SimpleNamespace(draw=lambda: Sampled({}))
    decoding = QueryDecoding(world, checked(DECODING_PARAMETERS, {}))
    runner = PolicyRunner(
        world,
        settings,
        world,
        sampling,
        decoding,
        pacer,
        clock,
        None,
        None,
        None,  # type: ignore[arg-type]
    )
    clock.spend(3.0)
    received_ns = clock.now_ns
    clock.spend(7.0)
    complete_ns = clock.now_ns
    clock.spend(11.0)
    prediction = runner.query(FrameSet(CAPTURE, received_ns, complete_ns, {}))
    assert prediction is not None
    return prediction


def test_each_stage_is_what_it_took(clock: Clock) -> None:
    times = predict(clock).times
    assert (times.transport, times.sync, times.wait) == pytest.approx((3.0, 7.0, 11.0))
    assert times.observation_age == pytest.approx(21.0)
    assert (times.preprocess, times.query, times.step) == pytest.approx((5.0, 60.0, 9.0))
    assert times.postprocess == pytest.approx(3.0)
    assert times.total == pytest.approx(77.0)


def test_the_budget_from_capture_to_command_adds_up(clock: Clock) -> None:
    prediction = predict(clock)
    clock.spend(0.75)
    published_ns = clock.now_ns
    clock.spend(1.5)
    arrival_ns = clock.now_ns
    clock.spend(20.0)
    times = prediction.times
    query = {
        f"{name}_ms": getattr(times, name)
        for name in ("transport", "sync", "wait", "preprocess", "query", "handover", "step", "postprocess")
    }
    query["publish_ms"] = (published_ns - prediction.ready_ns) * 1e-6
    budget = latency_budget(query, CAPTURE, (published_ns - CAPTURE) * 1e-6, arrival_ns, clock.now_ns)
    assert budget.total_ms == pytest.approx(3 + 7 + 11 + 77 + 0.75 + 1.5 + 20)
    assert sum(budget.stages.values()) == pytest.approx(budget.total_ms, abs=1e-3)


def test_the_prediction_says_what_it_was_made_of(clock: Clock) -> None:
    prediction = predict(clock)
    assert prediction.frame_stamps_ns == (CAPTURE, CAPTURE + 5)
    assert prediction.joint_stamp_ns == CAPTURE + 1


def test_an_interruption_between_two_clocks_is_not_counted(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruptions = [30.0, 20.0, 0.0]

    def interrupted() -> int:
        now_ns = clock.now_ns
        clock.spend(interruptions.pop(0))
        return now_ns

    now_ns, now = policy_runner._moment(interrupted)
    assert now == pytest.approx(now_ns * 1e-9)
    assert not interruptions
