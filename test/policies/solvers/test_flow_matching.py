from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.policies.base import GuidedSolver
from vla_simd_ros.policies.solvers.flow_matching import FlowMatching, TimeEmbedding, guidance_weight

SOLVER = FlowMatching(10, 5, 8, TimeEmbedding(6, 0.004, 4.0))


def weights(frozen: int, horizon: int, schedule: str, rows: int = 6) -> list[float]:
    return SOLVER.prefix_weights(rows, frozen, horizon, schedule)[:, 0].tolist()


def test_it_is_a_solver_that_can_be_guided() -> None:
    assert isinstance(SOLVER, GuidedSolver)
    assert (SOLVER.sample_shape, SOLVER.default_steps, SOLVER.noise_per_step) == ((5, 8), 10, False)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_steps_go_from_noise_to_actions(count: int) -> None:
    steps = SOLVER.steps(count)
    assert [float(step["time"][0]) for step in steps] == pytest.approx([1 - i / count for i in range(count)])
    assert all(step["steps"].tolist() == [count] and step["guidance"].tolist() == [0] for step in steps)
    assert all(value.dtype == np.float32 for step in steps for value in step.values())


def test_the_time_in_sines_and_cosines() -> None:
    periods = [0.004, 0.004 * math.sqrt(1000), 4.0]
    for time in (1.0, 0.7, 0.1):
        angles = [2 * math.pi * float(np.float32(time)) / period for period in periods]
        expected = [*map(math.sin, angles), *map(math.cos, angles)]
        embedding = SOLVER.time_embedding(time)
        assert embedding.shape == (1, 6) and embedding.dtype == np.float32
        np.testing.assert_allclose(embedding[0], expected, rtol=0, atol=1e-7)


def test_angles_are_not_rounded_to_float32() -> None:
    """The shortest period turns so far that float32 would lose four digits of the angle."""
    embedding = TimeEmbedding(2, 0.004, 4.0)(0.9)
    exact = math.sin(2 * math.pi * float(np.float32(0.9)) / 0.004)
    assert abs(float(embedding[0, 0]) - exact) < 1e-7
    rounded = math.sin(float(np.float32(2 * math.pi / 0.004) * np.float32(0.9)))
    assert abs(rounded - exact) > 1e-5


def test_frozen_rows_hold_and_late_ones_are_free() -> None:
    assert weights(2, 5, "LINEAR") == pytest.approx([1, 1, 0.75, 0.5, 0.25, 0])
    assert weights(2, 5, "ONES") == [1, 1, 1, 1, 1, 0]
    assert weights(2, 5, "ZEROS") == [1, 1, 0, 0, 0, 0]
    falling = [c * (math.exp(c) - 1) / (math.e - 1) for c in (0.75, 0.5, 0.25)]
    assert weights(2, 5, "EXP") == pytest.approx([1, 1, *falling, 0])


def test_without_rows_between_all_schedules_are_one() -> None:
    for schedule in SOLVER.schedules:
        assert weights(3, 3, schedule) == [1, 1, 1, 0, 0, 0]
        assert weights(6, 6, schedule) == [1] * 6
        assert weights(4, 2, schedule) == [1, 1, 0, 0, 0, 0], "no row beyond the horizon is held"


def test_guidance_is_strongest_at_first_and_limited() -> None:
    """At time t: t / (1 - t) divided by t^2 / (t^2 + (1 - t)^2)."""
    assert guidance_weight(1.0, 10.0) == 10
    assert guidance_weight(0.5, 10.0) == pytest.approx(2)
    assert guidance_weight(0.8, 10.0) == pytest.approx(4 * 0.68 / 0.64)
    assert guidance_weight(0.99, 10.0) == 10
    # Towards the end the variance that is left vanishes.
    assert guidance_weight(0.1, 10.0) == pytest.approx(1 / 9 * 0.82 / 0.01)
    guided = SOLVER.guided_steps(4, 3.0)
    expected = [min(guidance_weight(t, math.inf), 3.0) for t in (0.75, 0.5, 0.25)]
    assert [float(step["guidance"][0]) for step in guided] == pytest.approx([3.0, *expected])
