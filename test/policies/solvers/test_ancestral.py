from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.policies.solvers.ancestral import AncestralSolver

FREQUENCIES = np.array([0.1, -0.3, 0.25], np.float32)


def solver(steps: int = 20) -> AncestralSolver:
    return AncestralSolver(steps, (4, 7), FREQUENCIES)


def test_steps_follow_the_cosine_schedule() -> None:
    """Of Nichol and Dhariwal (arXiv 2102.09672), equation 17, sampled by equation 2 of Ho et al."""
    left = np.cos((np.arange(21) / 20 + 0.008) / 1.008 * np.pi / 2) ** 2
    beta = np.minimum(1 - left[1:] / left[:-1], 0.999)
    kept = np.cumprod(1 - beta)
    made = solver().steps(20)
    assert len(made) == 20
    for step, time in zip(made, reversed(range(20)), strict=True):
        # 1 - beta loses digits in float32.
        np.testing.assert_allclose(step["noise_share"], beta[time] / np.sqrt(1 - kept[time]), rtol=2e-5)
        np.testing.assert_allclose(step["gain"], 1 / np.sqrt(1 - beta[time]), rtol=2e-5)
        np.testing.assert_allclose(step["level"], np.sqrt(1 - kept[time]), rtol=1e-5)
        np.testing.assert_allclose(step["deviation"], np.sqrt(beta[time]) if time else 0, rtol=1e-6)


def test_time_is_told_by_cosines_and_sines() -> None:
    angle = 2 * np.pi * 19 * FREQUENCIES.astype(np.float64)
    features = solver().steps(20)[0]["time_features"]
    np.testing.assert_allclose(features, [[*np.cos(angle), *np.sin(angle)]], atol=1e-7)
    np.testing.assert_array_equal(solver().steps(20)[-1]["time_features"], [[1, 1, 1, 0, 0, 0]])


def test_inputs_are_as_declared() -> None:
    given = solver(5)
    assert given.noise_per_step and given.default_steps == 5 and given.sample_shape == (4, 7)
    for step in given.steps(5):
        assert {name: values.shape for name, values in step.items()} == given.input_shapes
        assert {values.dtype for values in step.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("count", [1, 19, 40])
def test_only_the_steps_of_training(count: int) -> None:
    with pytest.raises(ValueError, match="expected 20, the steps that the network was trained with"):
        solver().steps(count)
