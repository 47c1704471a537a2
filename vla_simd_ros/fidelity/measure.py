"""How far two sets of outputs are apart, and how far they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.executors.convolution import EXACT_CONVOLUTIONS
from vla_simd_ros.executors.linear import EXACT_LINEARS

Array = npt.NDArray[Any]

# Of the largest absolute action.
BOUND = 2e-6
# The same where convolutions may be computed by Winograd's method on tiles of 4x4, linear layers by
# Strassen's.
FEWER_PRODUCTS_BOUND = 2e-5
# By how much these grow for a policy that iterates: an error goes through the network again in each step.
ITERATING_FACTOR = 5.0
# Relative RMS of the actions with layers in int8, unless said otherwise.
MAX_RMS = 0.05
# Where the float32 reference itself departs from its float64 run by more than the bound.
DEPARTURE_FACTOR = 1.5


@dataclass(frozen=True)
class Distance:
    """Largest absolute difference, the same over the largest expected value, and relative RMS."""

    absolute: float
    relative: float
    rms: float


def distance(actual: Array, expected: Array) -> Distance:
    """Distance of ``actual`` from ``expected``, in float64; not finite where ``actual`` is not."""
    target = expected.astype(np.float64)
    difference = actual.astype(np.float64) - target
    absolute = float(np.abs(difference).max(initial=0.0))
    largest = float(np.abs(target).max(initial=0.0))
    energy = float(np.square(target).sum())
    rms = float(np.sqrt(np.square(difference).sum() / energy)) if energy else float(absolute > 0)
    return Distance(absolute, absolute / largest if largest else float(absolute > 0), rms)


def bound_with(convolution: str, iterates: bool = False, *, linear: str = "direct") -> float:
    """The bound on the relative error with settings for convolutions and linear layers, and for a policy that
    iterates."""
    exact = convolution in EXACT_CONVOLUTIONS and linear in EXACT_LINEARS
    bound = BOUND if exact else FEWER_PRODUCTS_BOUND
    return bound * ITERATING_FACTOR if iterates else bound


def allowed(departure: float, bound: float = BOUND) -> float:
    """The bound on the relative error, given the float32 reference's own departure from float64."""
    return max(bound, DEPARTURE_FACTOR * departure)
