from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.policies.solvers.ancestral import AncestralSolver


def solver(steps: int = 20, used: int = 7) -> AncestralSolver:
    return AncestralSolver(steps, (4, 7), used, 5.0)


def test_steps_follow_the_cosine_schedule() -> None:
    """Of Nichol and Dhariwal (arXiv 2102.09672), equation 17, sampled by equation 2 of Ho et al."""
    left = np.cos((np.arange(21) / 20 + 0.008) / 1.008 * np.pi / 2) ** 2
    beta = np.minimum(1 - left[1:] / left[:-1], 0.999)
    kept = np.cumprod(1 - beta)
    made = solver().steps(20)
    assert len(made) == 20
    assert [step["timestep"].tolist() for step in made] == [[time] for time in reversed(range(20))]
    for step in made:
        time = step["timestep"][0]
        share, gain, deviation, level = step["coefficients"]
        # 1 - beta loses digits in float32.
        np.testing.assert_allclose(share, beta[time] / np.sqrt(1 - kept[time]), rtol=2e-5)
        np.testing.assert_allclose(gain, 1 / np.sqrt(1 - beta[time]), rtol=2e-5)
        np.testing.assert_allclose(deviation, np.sqrt(beta[time]) if time else 0, rtol=1e-6)
        np.testing.assert_allclose(level, np.sqrt(1 - kept[time]), rtol=1e-5)


@pytest.mark.parametrize("used", [7, 5])
def test_a_step(used: int) -> None:
    given = solver(used=used)
    b = Builder()
    sample = given.sample(b)
    noise = b.input("noise", (4, 7), DType.F32, Lifetime.STEP)
    b.output("next", given.advance(b, sample, noise))
    graph = b.graph()
    rng = np.random.default_rng(0)
    x, predicted, drawn = (rng.standard_normal((4, 7), np.float32) for _ in range(3))
    x[0, 0] = 40
    coefficients = np.array([0.3, 1.2, 0.4, 0.7], np.float32)
    values = {"sample": x, "noise": predicted, "step_noise": drawn, "coefficients": coefficients}

    made = run_graph(graph, values)[graph.outputs["next"]]

    share, gain, deviation, level = coefficients.astype(np.float64)
    expected = np.clip((x - share * predicted) * gain + deviation * drawn, -5, 5)
    expected[:, used:] = (level * drawn)[:, used:]
    assert expected[0, 0] == 5
    np.testing.assert_allclose(made, expected, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 19, 40])
def test_only_the_steps_of_training(count: int) -> None:
    with pytest.raises(ValueError, match="expected 20, the steps that the network was trained with"):
        solver().steps(count)
