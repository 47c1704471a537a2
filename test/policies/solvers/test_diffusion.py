"""Samplers against the formulas of their papers, in float64 and written independently."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.base import Solver
from vla_simd_ros.policies.solvers.beta_schedules import betas
from vla_simd_ros.policies.solvers.diffusion import DiffusionProcess, DiffusionSolver

SHAPE = (5, 3)
TRAIN = 20


def solver(
    kind: str, prediction: str = "epsilon", clip: float | None = 1.0, train: int = TRAIN
) -> DiffusionSolver:
    process = DiffusionProcess(train, "linear", 0.001, 0.2, prediction, clip)
    return DiffusionSolver(kind, process, default_steps=train, sample_shape=SHAPE)


def run(made: DiffusionSolver, count: int, network: Callable[[Array, int], Array], noise: Array) -> Array:
    """Repeat the step of a graph whose network is ``network``; noise [1 + count, rows, width]."""
    b = Builder()
    sample = made.sample(b)
    prediction = b.input("prediction", SHAPE, DType.F32, Lifetime.STEP)
    b.output("sample", made.advance(b, sample, prediction))
    graph = b.graph()
    x: Array = noise[0].astype(np.float64)
    for index, given in enumerate(made.steps(count)):
        time = int(given["timestep"][0])
        inputs = {"sample": x, "prediction": network(x, time), "coefficients": given["coefficients"]}
        if made.noise_per_step:
            inputs["step_noise"] = noise[1 + index]
        x = run_graph(graph, inputs)[graph.outputs["sample"]]
    return x


def network(x: Array, time: int) -> Array:
    return np.asarray(np.tanh(np.roll(x, 1, axis=0) * 1.7 + 0.1 * time - 0.5))


def by_the_papers(
    kind: str, prediction: str, clip: float | None, count: int, noise: Array, train: int = TRAIN
) -> Array:
    """Ho et al. (2006.11239), equation 7 and its variance; Song et al. (2010.02502), equation 12."""
    beta = betas("linear", train, 0.001, 0.2).astype(np.float64)
    product = [math.prod(1 - beta[: t + 1]) for t in range(train)]
    stride = train // count
    x: Array = noise[0].astype(np.float64)
    for index in range(count):
        t = (count - 1 - index) * stride
        now, before = product[t], product[t - stride] if t >= stride else 1.0
        output = network(x, t)
        if prediction == "epsilon":
            epsilon, clean = output, (x - math.sqrt(1 - now) * output) / math.sqrt(now)
        else:
            clean, epsilon = output, (x - math.sqrt(now) * output) / math.sqrt(1 - now)
        if clip is not None:
            clean = np.clip(clean, -clip, clip)
        if kind == "DDIM":
            x = math.sqrt(before) * clean + math.sqrt(1 - before) * epsilon
            continue
        alpha = now / before
        mean = (
            math.sqrt(before) * (1 - alpha) / (1 - now) * clean
            + math.sqrt(alpha) * (1 - before) / (1 - now) * x
        )
        deviation = math.sqrt((1 - before) / (1 - now) * (1 - alpha)) if t > 0 else 0.0
        x = mean + deviation * noise[1 + index]
    return x


@pytest.mark.parametrize("kind", ["DDPM", "DDIM"])
@pytest.mark.parametrize("prediction", ["epsilon", "sample"])
@pytest.mark.parametrize("clip", [None, 0.4, 1.0])
@pytest.mark.parametrize("count", [1, 6, 10, TRAIN])
def test_samples_are_those_of_the_papers(kind: str, prediction: str, clip: float | None, count: int) -> None:
    noise = np.random.default_rng(count).standard_normal((1 + count, *SHAPE)).astype(np.float32)
    expected = by_the_papers(kind, prediction, clip, count, noise)
    actual = run(solver(kind, prediction, clip), count, network, noise)
    # What is lost of the signal early on, 1 - a, has few digits left in float32.
    assert np.abs(actual - expected).max() <= 5e-5 * np.abs(expected).max()


def test_ddim_takes_no_noise_and_ddpm_none_in_its_last_step() -> None:
    assert not solver("DDIM").noise_per_step
    ddpm = solver("DDPM")
    assert ddpm.noise_per_step
    spreads = [given["coefficients"][4] for given in ddpm.steps(TRAIN)]
    assert spreads[-1] == 0
    assert all(spread > 0 for spread in spreads[:-1])


@pytest.mark.parametrize("kind", ["DDPM", "DDIM"])
def test_steps_are_evenly_spaced_and_end_at_zero(kind: str) -> None:
    times = [int(given["timestep"][0]) for given in solver(kind, train=100).steps(7)]
    assert times == [84, 70, 56, 42, 28, 14, 0]
    assert [int(given["timestep"][0]) for given in solver(kind).steps(1)] == [0]


@pytest.mark.parametrize("count", [0, -1, TRAIN + 1])
def test_a_count_that_was_not_trained_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} solver steps, expected 1 to {TRAIN}"):
        solver("DDIM").steps(count)


def test_it_is_a_solver() -> None:
    made: Solver = solver("DDPM")
    assert (made.default_steps, made.sample_shape) == (TRAIN, SHAPE)
    (first, *_) = made.steps(3)
    assert first["timestep"].dtype == np.int32
    assert first["coefficients"].dtype == np.float32
