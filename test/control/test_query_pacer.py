"""Which observations are queried, on a clock that the test moves."""

from __future__ import annotations

from itertools import pairwise

import pytest

from vla_simd_ros.control.query_pacer import QueryPacer, SupplyReport
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.control.timeline import Mode

MS = 1_000_000
PERIOD = 100 * MS
START = 1_000_000 * MS
DURATION = 20 * PERIOD
DELAY = 150 * MS
TRANSPORT = 5 * MS


class Bench:
    """A camera at the control rate, a policy of fixed delay, and an executor that reports each arrival."""

    def __init__(self, pacing: QueryPacing, mode: Mode = Mode.TIME_ALIGNED, threshold: int = 3) -> None:
        self.pacer = QueryPacer(pacing, threshold)
        self.mode = mode
        self.now = START
        self.sequence = 0
        self.queried: list[int] = []

    def report(self, buffered_steps: int = 9, **changes: object) -> None:
        values = {
            "time_ns": self.now, "mode": self.mode, "period_ns": PERIOD, "buffered_steps": buffered_steps,
            "sequence": self.sequence, "delay_ns": DELAY + TRANSPORT,
        }  # fmt: skip
        self.pacer.executor(SupplyReport(**{**values, **changes}))  # type: ignore[arg-type]

    def observations(self, count: int) -> list[int]:
        """Captures one period apart; the index of each that was queried."""
        asked = []
        for i in range(count):
            self.now += PERIOD
            self.pacer.observed(self.now)
            if self.pacer.due(self.now):
                asked.append(i)
                self.publish(self.now)
                self.report()
        return asked

    def publish(self, capture_ns: int) -> None:
        self.sequence += 1
        self.pacer.published(self.sequence, capture_ns, capture_ns + DELAY, DURATION)


def test_every_observation_is_queried_continuously() -> None:
    bench = Bench(QueryPacing.CONTINUOUS)
    bench.report()
    assert bench.observations(30) == list(range(30))


@pytest.mark.parametrize("pacing", list(QueryPacing))
def test_without_an_executor_every_observation_is_queried(pacing: QueryPacing) -> None:
    bench = Bench(pacing)
    for _ in range(100):
        bench.now += PERIOD
        bench.pacer.observed(bench.now)
        assert bench.pacer.due(bench.now)
        bench.publish(bench.now)


def test_on_demand_waits_until_few_rows_are_left() -> None:
    bench = Bench(QueryPacing.ON_DEMAND)
    bench.report()
    # 20 rows from the capture on: 3 are left 17 captures later.
    assert bench.observations(52) == [0, 17, 34, 51]


def test_on_demand_counts_lagged_rows_from_their_arrival() -> None:
    bench = Bench(QueryPacing.ON_DEMAND, Mode.LAGGED)
    bench.report()
    # The first chunk is awaited after 150 ms, the others with the 5 ms measured then.
    assert bench.observations(60) == [0, 19, 38, 57]


def test_just_in_time_is_as_late_as_the_delay_and_one_frame_allow() -> None:
    bench = Bench(QueryPacing.JUST_IN_TIME)
    bench.report()
    asked = bench.observations(200)
    assert asked[:50] == list(range(50))
    # Reserve: 155 ms and one control step. The next capture would leave less at index 17, not at 16.
    assert [later - earlier for earlier, later in pairwise(asked[50:])] == [17] * 7


def test_a_slow_query_and_a_slow_transport_make_it_earlier() -> None:
    bench = Bench(QueryPacing.JUST_IN_TIME)
    bench.report()
    bench.observations(50)
    bench.publish(bench.now)
    bench.report(delay_ns=DELAY + 400 * MS)
    bench.publish(bench.now)
    assert bench.observations(15)[0] == 13 - 1, "550 ms and one step before the end of 20, one frame earlier"


def test_a_new_epoch_is_queried_at_once() -> None:
    bench = Bench(QueryPacing.ON_DEMAND)
    bench.report()
    assert bench.observations(5) == [0]
    bench.pacer.start_epoch()
    assert bench.observations(5) == [0]


def test_rows_that_are_missing_at_the_executor_are_asked_for() -> None:
    bench = Bench(QueryPacing.ON_DEMAND)
    bench.report()
    assert bench.observations(3) == [0]
    bench.now -= PERIOD
    bench.report(buffered_steps=0, time_ns=START + PERIOD + DELAY)
    assert not bench.pacer.due(bench.now), "the chunk may still be on its way"
    bench.report(buffered_steps=0, time_ns=START + PERIOD + DELAY + TRANSPORT + PERIOD + 1)
    assert bench.pacer.due(bench.now)


@pytest.mark.parametrize("changes", [{"mode": Mode.LAGGED}, {"period_ns": 2 * PERIOD}])
def test_delays_of_another_execution_are_forgotten(changes: dict[str, object]) -> None:
    bench = Bench(QueryPacing.JUST_IN_TIME)
    bench.report()
    assert len(bench.observations(80)) < 60
    bench.report(**changes)
    bench.mode = changes.get("mode", bench.mode)  # type: ignore[assignment]
    bench.now += PERIOD
    assert bench.pacer.due(bench.now)


def test_after_a_jump_of_the_clock_delays_are_measured_anew() -> None:
    bench = Bench(QueryPacing.JUST_IN_TIME)
    bench.report()
    bench.observations(80)
    bench.now = START // 2
    bench.pacer.clock_jumped()
    assert bench.observations(60)[:50] == list(range(50))
