"""The schedules against their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.policies.solvers.beta_schedules import SCHEDULES, betas, products_of_alphas

FIRST, LAST = 1e-4, 0.02


@pytest.mark.parametrize("count", [1, 2, 7, 100, 1000])
def test_linear_schedules_go_from_the_first_beta_to_the_last(count: int) -> None:
    line = np.linspace(FIRST, LAST, count)
    np.testing.assert_allclose(betas("linear", count, FIRST, LAST), line, rtol=2e-7)
    scaled = np.linspace(FIRST**0.5, LAST**0.5, count) ** 2
    np.testing.assert_allclose(betas("scaled_linear", count, FIRST, LAST), scaled, rtol=4e-7)
    logistic = FIRST + (LAST - FIRST) / (1 + np.exp(-np.linspace(-6, 6, count)))
    np.testing.assert_allclose(betas("sigmoid", count, FIRST, LAST), logistic, rtol=1e-6)


def test_the_cosine_schedule_leaves_the_signal_of_its_paper() -> None:
    """Nichol and Dhariwal (arXiv 2102.09672), equation 17; the last beta is held below 1."""
    count = 50
    time = np.arange(count + 1) / count
    signal = np.cos((time + 0.008) / 1.008 * np.pi / 2) ** 2
    left = products_of_alphas(betas("squaredcos_cap_v2", count, FIRST, LAST))
    np.testing.assert_allclose(left[:-1], (signal / signal[0])[1:-1], rtol=2e-5)
    assert betas("squaredcos_cap_v2", count, FIRST, LAST)[-1] == np.float32(0.999)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_destroys_the_signal_bit_by_bit(schedule: str) -> None:
    values = betas(schedule, 100, FIRST, LAST)
    left = products_of_alphas(values)
    assert values.dtype == left.dtype == np.float32
    assert ((values > 0) & (values < 1)).all()
    assert (np.diff(left) < 0).all() and left[-1] > 0
    np.testing.assert_allclose(left, np.cumprod(1 - values.astype(np.float64)), rtol=1e-5)
