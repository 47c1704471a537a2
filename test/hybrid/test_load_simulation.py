"""The controller over load traces of several kinds, beside one who knows them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from vla_simd_ros.hybrid.cut_controller import ControllerSettings
from vla_simd_ros.hybrid.load_simulation import simulate_load
from vla_simd_ros.hybrid.load_traces import LoadTrace, make_loads
from vla_simd_ros.hybrid.split_search import Resources, best_split, predict, splits
from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts

FRAMES = 2000
NOISE = tuple(np.random.default_rng(5).normal(1.0, 0.02, 512))
ZONE = ControllerSettings(first=9, last=33)
START = 17
BEST = 16  # without any load


def orion() -> StageCosts:
    """Vision on the first executor, then 32 blocks of 7 ms there and 23.4 ms on the second."""
    vision = BlockCost("vision", 0.296, float("inf"), 0, 0, 0)
    layers = (BlockCost(f"llm.{i}", 0.007, 0.0234, 1, 1, 0) for i in range(32))
    return StageCosts((vision, *layers), transfer_s=0.0004, transfer_rate=1e12)


def waves(rng: np.random.Generator) -> LoadTrace:
    """Each side's load goes up and down, not together, within a minute or two of frames."""
    t = np.arange(FRAMES)[:, None]
    return 0.3 + 0.3 * np.sin(2 * np.pi * t / np.array([240.0, 330.0]) + rng.uniform(0, 6, 2))


def phases(rng: np.random.Generator) -> LoadTrace:
    """Other work that begins and ends: levels that hold for 40 to 160 frames."""
    columns = []
    for _ in range(2):
        lengths = rng.integers(40, 160, FRAMES // 40)
        columns.append(np.repeat(rng.uniform(0.0, 0.7, len(lengths)), lengths)[:FRAMES])
    return np.stack(columns, axis=1)


def wandering(rng: np.random.Generator) -> LoadTrace:
    """A random walk between 0 and 0.7."""
    steps = np.cumsum(rng.normal(0.0, 0.01, (FRAMES, 2)), axis=0)
    return 0.35 + 0.35 * np.sin(steps * 3.0)


def bursts(rng: np.random.Generator) -> LoadTrace:
    """Other work for 8 frames of 60, on either side."""
    at = np.arange(FRAMES)[:, None] + rng.integers(0, 60, 2)
    return np.where(at % 60 < 8, rng.uniform(0.4, 0.7, 2), 0.0)


def coming_and_going(rng: np.random.Generator) -> LoadTrace:
    """Work that begins and ends at random, 15 frames of it at a time and 30 between them in the mean."""
    columns = []
    for _ in range(2):
        lengths = rng.geometric(np.tile([1 / 30, 1 / 15], FRAMES // 20))
        columns.append(np.repeat(np.tile([0.0, rng.uniform(0.3, 0.6)], FRAMES // 20), lengths)[:FRAMES])
    return np.stack(columns, axis=1)


def correlated(rng: np.random.Generator) -> LoadTrace:
    """Noise that is alike for 30 frames."""
    keeps = np.exp(-1 / 30)
    loads = np.zeros((FRAMES, 2))
    for before, now in pairwise(loads):
        now[:] = keeps * before + np.sqrt(1 - keeps**2) * rng.normal(size=2)
    return np.clip(0.3 + 0.2 * loads, 0.0, 0.8)


TRACES = (waves, phases, wandering, bursts, coming_and_going, correlated)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("trace", TRACES)
def test_close_to_who_knows_the_trace_and_better_than_every_fixed_cut(trace: object, seed: int) -> None:
    assert callable(trace)
    found = simulate_load(orion(), ZONE, START, trace(np.random.default_rng(seed)), NOISE)
    assert found.controlled_s <= 1.05 * found.oracle_s
    assert found.controlled_s < min(found.fixed_s.values())
    assert found.moves > 0


COMING_BACK = (
    "alternating",
    "squares-4-16",
    "squares-20-60",
    "waves-5-20",
    "bursts-6-of-40",
    "bursts-2-of-30",
    "saw-30-150",
)


@pytest.mark.parametrize("kind", COMING_BACK)
def test_loads_that_come_back_are_met_in_time_on_both_sides(kind: str) -> None:
    """Each side's with a period of its own, the shortest ones of two frames."""
    found = simulate_load(orion(), ZONE, START, make_loads(kind, "both", 21, FRAMES), NOISE)
    assert found.over_oracle <= 0.05
    assert found.over_fixed <= -0.03


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("trace", TRACES)
def test_as_good_as_every_fixed_cut_where_one_side_is_loaded(trace: object, side: int) -> None:
    assert callable(trace)
    loads = trace(np.random.default_rng(7))
    loads[:, 1 - side] = 0.0
    found = simulate_load(orion(), ZONE, START, loads, NOISE)
    assert found.controlled_s <= 1.05 * found.oracle_s
    assert found.controlled_s <= 1.005 * min(found.fixed_s.values())


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_loads_that_nobody_can_follow_leave_the_best_cut(delay: int) -> None:
    """Another load in every frame: the cut that is best on the whole is the best there is."""
    loads = np.random.default_rng(4).uniform(0.0, 0.6, (FRAMES, 2))
    found = simulate_load(orion(), ZONE, START, loads, NOISE, delay)
    assert found.controlled_s <= 1.01 * min(found.fixed_s.values())


@pytest.mark.parametrize(("trace", "longer"), [(phases, 1.005), (coming_and_going, 1.05)])
def test_a_cut_that_is_chosen_earlier_lags_more(
    trace: Callable[[np.random.Generator], LoadTrace], longer: float
) -> None:
    loads = trace(np.random.default_rng(3))
    means = [simulate_load(orion(), ZONE, START, loads, NOISE, delay).controlled_s for delay in (0, 1, 3)]
    assert means == sorted(means)
    assert means[-1] > longer * means[0]


def test_a_frame_under_way_costs_little_where_the_load_is_on_its_prefix() -> None:
    """The second side's load is known a frame later."""
    costs = []
    for side in (0, 1):
        loads = coming_and_going(np.random.default_rng(3))[:600]
        loads[:, 1 - side] = 0.0
        at_once, late = (simulate_load(orion(), ZONE, START, loads, NOISE, delay) for delay in (0, 1))
        costs.append(late.over_oracle - at_once.over_oracle)
    assert costs[0] < 0.1 * costs[1]


def test_what_it_came_to_is_told_against_the_best_cuts() -> None:
    loads = np.zeros((4, 2))
    loads[2:, 1] = 0.5
    found = simulate_load(orion(), ZONE, BEST, loads)
    # Two frames of 401 ms after 16 blocks, then, the last ones taking twice as long, two of 457 after 24.
    assert found.fixed_s[found.best_fixed] == min(found.fixed_s.values())
    assert found.over_oracle == pytest.approx(found.controlled_s / ((2 * 0.401 + 2 * 0.457) / 4) - 1.0)
    assert found.over_fixed == pytest.approx(found.controlled_s / found.fixed_s[found.best_fixed] - 1.0)


def test_a_delay_that_cannot_be_is_refused() -> None:
    with pytest.raises(CostError, match="the delay is -1 frames"):
        simulate_load(orion(), ZONE, START, np.zeros((3, 2)), delay=-1)


def test_a_budget_that_shrinks_to_a_tenth_is_followed() -> None:
    """All of the second side's time, then less and less of it: a frame comes later, but never as late as it
    would with the cut that was best at first, and in the end as if all blocks were on the first side."""
    budgets = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1)
    intervals = []
    for budget in budgets:
        loads = np.stack((np.zeros(300), np.full(300, 1.0 - budget)), axis=1)
        found = simulate_load(orion(), ZONE, START, loads, NOISE)
        assert found.controlled_s <= 1.05 * found.oracle_s
        assert found.controlled_s <= 1.01 * found.fixed_s[START]
        intervals.append(found.controlled_s)
    assert intervals == sorted(intervals)
    assert intervals[-1] < 1.05 * 0.520


def test_an_idle_machine_keeps_the_best_cut() -> None:
    best = best_split(splits(orion())).blocks
    found = simulate_load(orion(), ZONE, best, np.zeros((200, 2)), NOISE)
    assert found.moves == 0
    assert found.controlled_s == pytest.approx(found.oracle_s)


def test_noise_alone_does_not_make_it_wander() -> None:
    noise = tuple(np.random.default_rng(9).normal(1.0, 0.05, 512))
    found = simulate_load(orion(), ZONE, START, np.full((1000, 2), 0.2), noise)
    assert found.moves <= 10
    assert found.controlled_s <= 1.05 * found.oracle_s


def test_it_moves_when_a_side_is_loaded_and_comes_back() -> None:
    loads = np.zeros((300, 2))
    loads[100:200, 1] = 0.6
    found = simulate_load(orion(), ZONE, BEST, loads, NOISE)
    assert found.cuts[99] == BEST
    assert found.cuts[199] > BEST
    assert abs(found.cuts[-1] - BEST) <= 1
    assert (np.flatnonzero(np.diff(found.cuts))[0] - 100) <= 5


@pytest.mark.parametrize("loads", [np.zeros((0, 2)), np.zeros((3, 3)), np.ones((3, 2)), -np.ones((3, 2))])
def test_loads_that_cannot_be_are_refused(loads: LoadTrace) -> None:
    with pytest.raises(CostError, match="load"):
        simulate_load(orion(), ZONE, START, loads)


@pytest.mark.parametrize(("working", "resting"), [(10.0, 20.0), (4.0, 8.0), (2.0, 10.0)])
def test_of_work_by_chance_it_loses_little_against_who_knows_its_law(working: float, resting: float) -> None:
    """Who knows how long work and rest last in the mean, but not when they end, has after each frame the cut
    that costs least under what then may follow; nobody who does not know the trace can do better."""
    rng = np.random.default_rng(17)
    lengths = rng.geometric(np.tile([1 / resting, 1 / working], FRAMES))
    works = np.repeat(np.tile([0, 1], FRAMES), lengths)[:FRAMES]
    found = simulate_load(orion(), ZONE, START, np.stack((np.zeros(FRAMES), 0.55 * works), axis=1), NOISE)
    zone = range(ZONE.first, ZONE.last + 1)
    costs_s = np.array(
        [[predict(orion(), k, Resources(suffix_load=load)).interval_s for k in zone] for load in (0.0, 0.55)]
    )
    follows = np.array([[1 - 1 / resting, 1 / resting], [1 / working, 1 - 1 / working]])
    cuts = (follows @ costs_s).argmin(axis=1)
    lawful_s = costs_s[works[1:], cuts[works[:-1]]].mean()
    assert found.controlled_s <= 1.015 * lawful_s
