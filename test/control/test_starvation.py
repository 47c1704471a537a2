"""Exact starvation against enumeration of every course of events, and against the simulation."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.control.schedule import Schedule, control_steps, query_steps
from vla_simd_ros.control.starvation import starvation, survival, unseen_per_hour
from vla_simd_ros.control.supply_simulation import simulate
from vla_simd_ros.control.timeline import Mode

RATE = 10.0

schedules = st.builds(
    Schedule,
    rate=st.just(RATE),
    window=st.integers(1, 8),
    interval=st.integers(0, 5),
    added_s=st.sampled_from([0.0, 0.15]),
)
samples = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.4, 0.7, 1.1]), min_size=1, max_size=3)
modes = st.sampled_from(list(Mode))


def course(latencies: list[float], schedule: Schedule, mode: Mode) -> list[tuple[int, int, int, int]]:
    """Start, arrival, first and last step that each chunk has a row for."""
    start, chunks = 0, []
    for latency in latencies:
        arrival = start + int(control_steps(latency + schedule.added_s, RATE))
        first = start if mode is Mode.TIME_ALIGNED else arrival
        chunks.append((start, arrival, first, first + schedule.window - 1))
        start += max(1, schedule.interval, int(control_steps(latency, RATE)))
    return chunks


def starved_between(one: tuple[int, int, int, int], two: tuple[int, int, int, int]) -> int:
    """Steps from one arrival to the next for which the chunk that came first has no row."""
    return sum(not one[2] <= step <= one[3] for step in range(one[1], two[1]))


@settings(max_examples=100, deadline=None)
@given(samples, schedules, modes)
def test_the_rates_are_those_of_all_pairs_of_queries(
    sample: list[float], schedule: Schedule, mode: Mode
) -> None:
    # The start of the second query does not depend on its own latency, so pairs say everything.
    pairs = [course([one, two], schedule, mode) for one, two in product(sample, repeat=2)]
    starved = [starved_between(one, two) for one, two in pairs]
    advance = [two[0] - one[0] for one, two in pairs]
    found = starvation(query_steps(sample, schedule), mode)
    assert found.per_chunk == pytest.approx(np.mean([count > 0 for count in starved]))
    assert found.starved_share == pytest.approx(np.mean(starved) / np.mean(advance))
    assert found.per_hour == pytest.approx(found.per_chunk * 3600 * RATE / np.mean(advance))
    stale = [min(one[1] - one[2], schedule.window) for one, _ in pairs]
    assert found.stale_rows == pytest.approx(np.mean(stale))
    assert found.low <= found.per_hour * (1 + 1e-9) and found.high > 0


def enumerated(sample: list[float], schedule: Schedule, mode: Mode, steps: int) -> float:
    """Probability of no starved step before ``steps``, by every sequence of latencies that matters."""

    def alive(before: list[float]) -> float:
        chunks = course(before, schedule, mode)
        for one, two in pairwise(chunks):
            missing = [s for s in range(one[1], two[1]) if not one[2] <= s <= one[3]]
            if missing and min(missing) < steps:
                return 0.0
        # From here on, a starvation can only be later than the last chunk's arrival.
        if chunks[-1][1] >= steps:
            return 1.0
        return float(np.mean([alive([*before, latency]) for latency in sample]))

    return float(np.mean([alive([latency]) for latency in sample]))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0.2, 0.25, 0.4, 0.7]), min_size=1, max_size=2),
    st.builds(
        Schedule,
        rate=st.just(RATE),
        window=st.integers(2, 12),
        interval=st.integers(2, 5),
        added_s=st.sampled_from([0.0, 0.15]),
    ),
    modes,
    st.integers(1, 16),
)
def test_survival_is_that_of_all_courses(
    sample: list[float], schedule: Schedule, mode: Mode, steps: int
) -> None:
    got = survival(query_steps(sample, schedule), mode, steps)
    expected = enumerated(sample, schedule, mode, steps)
    assert got == pytest.approx(expected, abs=1e-12)


def test_survival_of_many_steps_is_that_of_step_by_step() -> None:
    """The shortcut for long times against a run without it, for periodic and aperiodic latencies."""
    for sample in ([0.2] * 8 + [0.7], [0.3] * 20 + [0.6, 0.9], [0.4] * 30 + [0.8]):
        queries = query_steps(sample, Schedule(RATE, 11))
        assert survival(queries, Mode.TIME_ALIGNED, 3000) == pytest.approx(
            step_by_step(sample, 11, 3000), rel=1e-8
        )


def step_by_step(sample: list[float], window: int, steps: int) -> float:
    """The time-aligned chain without any shortcut: probabilities by start and advance, in a dictionary."""
    delays = [int(control_steps(latency, RATE)) for latency in sample]
    states: dict[tuple[int, int], float] = {}
    for delay in delays:
        states[delay, delay] = states.get((delay, delay), 0.0) + 1 / len(delays)
    lost = 0.0
    for step in range(steps + window):
        for (start, advance), mass in [item for item in states.items() if item[0][0] == step]:
            del states[start, advance]
            for delay in delays:
                if advance + delay <= window:
                    key = (start + delay, delay)
                    states[key] = states.get(key, 0.0) + mass / len(delays)
                elif start - advance + window < steps:
                    lost += mass / len(delays)
    return 1.0 - lost


def heavy(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return np.asarray(0.25 * (1 + rng.pareto(3.0, 1000)))


DISTRIBUTIONS = {
    "lognormal": lambda rng: rng.lognormal(math.log(0.3), 0.35, 500),
    "heavy tail": heavy,
    "bimodal": lambda rng: np.where(rng.random(400) < 0.03, 0.8, 0.3),
    "uniform": lambda rng: rng.uniform(0.05, 0.6, 300),
    "no variance": lambda rng: np.full(20, 0.5),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("window", "interval", "added"), [(20, 0, 0.0), (30, 14, 0.07)])
def test_reasoning_and_simulation_agree(
    name: str, mode: Mode, window: int, interval: int, added: float
) -> None:
    sample = DISTRIBUTIONS[name](np.random.default_rng(7))
    schedule = Schedule(30.0, window, interval, added)
    exact = starvation(query_steps(sample, schedule), mode)
    run = simulate(sample, schedule, mode, hours=8.0, seed=3)
    # Two intervals wide: all twenty comparisons hold together with more than 99 %.
    assert run.low - (run.high - run.low) / 2 <= exact.per_hour <= run.high + (run.high - run.low) / 2
    assert run.starved_share == pytest.approx(exact.starved_share, rel=0.15, abs=1e-4)
    assert run.stale_rows / run.chunks == pytest.approx(exact.stale_rows, rel=0.01)
    if exact.per_hour == 0.0:
        assert run.starvations == 0


def test_the_probability_within_an_hour_is_that_of_simulated_hours() -> None:
    sample = np.array([0.3] * 400 + [0.75])
    schedule = Schedule(30.0, 30)
    exact = starvation(query_steps(sample, schedule), Mode.TIME_ALIGNED).within_hour
    rare = starvation(query_steps(np.append(np.full(3000, 0.3), 0.9), schedule), Mode.TIME_ALIGNED)
    assert exact == pytest.approx(1 - survival(query_steps(sample, schedule), Mode.TIME_ALIGNED, 108_000))
    hours = [
        simulate(np.append(np.full(3000, 0.3), 0.9), schedule, Mode.TIME_ALIGNED, 1.0, seed).starvations > 0
        for seed in range(40)
    ]
    assert rare.within_hour == pytest.approx(np.mean(hours), abs=4 * math.sqrt(0.25 / 40))
    # Pairs of starvations share a slow query, so an hour without any is likelier than of independent ones.
    assert rare.within_hour < 1 - math.exp(-rare.per_hour)


def test_what_was_never_seen_is_bounded_by_the_size_of_the_sample() -> None:
    schedule = Schedule(30.0, 100)
    few, many = (query_steps(np.full(n, 0.3), schedule) for n in (20, 2000))
    for mode, victims in ((Mode.LAGGED, 1), (Mode.TIME_ALIGNED, 2)):
        found = starvation(few, mode)
        assert (found.per_hour, found.within_hour) == (0.0, 0.0)
        assert found.high == unseen_per_hour(few, mode) == pytest.approx(victims * 0.1391 * 12_000, rel=1e-3)
        assert unseen_per_hour(many, mode) == pytest.approx(victims * 3 / 2000 * 12_000, rel=5e-3)


def test_without_variance_the_conditions_decide() -> None:
    for delay in range(1, 13):
        for window in range(1, 26):
            queries = query_steps([delay / RATE], Schedule(RATE, window))
            assert (starvation(queries, Mode.LAGGED).per_chunk == 0) == (delay <= window)
            assert (starvation(queries, Mode.TIME_ALIGNED).per_chunk == 0) == (2 * delay <= window)
