from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.benchmarks.interleave import Plan, Visit, make_plan, measure, visits


class Drifting:
    """A runner on a machine whose every query takes a millisecond longer than the one before."""

    now = 0.0

    def __init__(self, base_ms: float) -> None:
        self.base_ms = base_ms

    def time_queries(self, first: int, count: int) -> list[float]:
        times = []
        for _ in range(count):
            times.append(self.base_ms + Drifting.now)
            Drifting.now += 1.0
        return times


@pytest.fixture(autouse=True)
def at_the_start() -> None:
    Drifting.now = 0.0


def test_two_runners_alternate_there_and_back() -> None:
    order = [visit.runner for visit in visits(["A", "B"], Plan(blocks=2, per_visit=1))]
    assert order == ["A", "B", "B", "A", "A", "B", "B", "A"]


@given(st.integers(1, 200), st.integers(1, 12))
def test_plan_holds_at_least_what_was_asked(queries: int, blocks: int) -> None:
    plan = make_plan(queries, blocks)
    assert plan.blocks == blocks
    assert queries <= plan.queries < queries + 2 * blocks


@pytest.mark.parametrize(("queries", "blocks"), [(0, 1), (1, 0), (-5, 2)])
def test_empty_plan_is_refused(queries: int, blocks: int) -> None:
    with pytest.raises(ValueError, match="at least one of each"):
        make_plan(queries, blocks)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_every_runner_gets_every_observation_as_often(blocks: int, per_visit: int, runners: int) -> None:
    names = [f"r{i}" for i in range(runners)]
    asked = Counter(
        (visit.runner, index)
        for visit in visits(names, Plan(blocks, per_visit))
        for index in range(visit.first, visit.first + visit.count)
    )
    assert asked == Counter({(n, i): 1 for n in names for i in range(2 * blocks * per_visit)})


def test_steady_drift_favours_nobody() -> None:
    runners = {"A": Drifting(100.0), "B": Drifting(100.0), "C": Drifting(100.0)}
    times = measure(runners, Plan(blocks=3, per_visit=2), lambda _: None)
    for block in range(3):
        means = {sum(times[name][block]) / 4 for name in runners}
        assert len(means) == 1


def test_times_keep_their_block_and_turns_are_announced() -> None:
    announced: list[Visit] = []
    times = measure({"A": Drifting(0.0), "B": Drifting(0.0)}, Plan(2, 1), announced.append)
    assert times == {"A": [[0.0, 3.0], [4.0, 7.0]], "B": [[1.0, 2.0], [5.0, 6.0]]}
    assert [(visit.block, visit.runner, visit.first) for visit in announced[:4]] == [
        (0, "A", 0),
        (0, "B", 0),
        (0, "B", 1),
        (0, "A", 1),
    ]
