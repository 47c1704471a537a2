"""Whether runners compute the same actions; only those that do are worth timing against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vla_simd_ros.graph.int8 import FP32, INT8
from vla_simd_ros.graph.ir import Array

TOLERANCES: Mapping[str, float] = {FP32: 1e-4, INT8: 0.2}
"""Largest accepted departure by precision, relative to the largest reference action. Runners in fp32 that
only sum in another order stay one to two decades below theirs; a wrong weight or a lower precision does not.
In int8 a departure is part of the bargain, and reported; beyond this one the actions are others."""


class DisagreementError(Exception):
    """A runner's actions are not those of the reference."""


def departure(actions: Array, reference: Array) -> float:
    """Maximum absolute error over the largest absolute reference action; infinite where they cannot be
    compared (another shape, a value that is not finite, a reference of nothing but zeros)."""
    if actions.shape != reference.shape or not np.isfinite(actions).all():
        return float("inf")
    largest = float(np.abs(reference).max(initial=0.0))
    if largest == 0.0:
        return float("inf")
    return float(np.abs(actions.astype(np.float64) - reference).max() / largest)


def check_agreement(
    answers: Mapping[str, Sequence[Array]], reference: Sequence[Array], tolerances: Mapping[str, float]
) -> dict[str, float]:
    """Largest departure of each runner over all observations.

    ``answers`` are each runner's actions ``[chunk, action width]`` per observation, ``reference`` those of
    the float64 reference, ``tolerances`` what is accepted of each runner. Raises ``DisagreementError`` naming
    every runner that departs by more.
    """
    worst = {
        runner: max(departure(got, expected) for got, expected in zip(actions, reference, strict=True))
        for runner, actions in answers.items()
    }
    beyond = [
        f"{runner} departs by {error:.2e} of the largest action from the float64 reference,"
        f" expected at most {tolerances[runner]:.0e}"
        for runner, error in worst.items()
        if not error <= tolerances[runner]
    ]
    if beyond:
        raise DisagreementError(f"not timed, the outputs differ: {'; '.join(beyond)}")
    return worst
