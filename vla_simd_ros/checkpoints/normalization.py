"""Normalization of inputs and its inverse for outputs, with the arithmetic of LeRobot's processors."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature

F32 = npt.NDArray[np.float32]
Statistics = Mapping[str, npt.NDArray[np.float32]]


class NormMode(enum.Enum):
    """How a feature is normalized; the range modes map their two statistics to -1 and 1."""

    IDENTITY = "IDENTITY"
    MEAN_STD = "MEAN_STD"
    MIN_MAX = "MIN_MAX"
    QUANTILES = "QUANTILES"
    QUANTILE10 = "QUANTILE10"

    @property
    def statistics(self) -> tuple[str, ...]:
        """The two statistics that this mode reads; none for the identity."""
        return _STATISTICS[self]


_STATISTICS = {
    NormMode.IDENTITY: (),
    NormMode.MEAN_STD: ("mean", "std"),
    NormMode.MIN_MAX: ("min", "max"),
    NormMode.QUANTILES: ("q01", "q99"),
    NormMode.QUANTILE10: ("q10", "q90"),
}


@dataclass(frozen=True)
class Normalizer:
    """Robot units to network units: ``y = (x - offset) / divisor + shift``, per channel.

    ``shift`` is None unless a range mode meets a channel whose two statistics are equal: only
    there the centre of the range cannot be written into ``offset`` without losing it to rounding.
    """

    feature: Feature
    mode: NormMode
    offset: F32
    divisor: F32
    shift: F32 | None = None


@dataclass(frozen=True)
class Unnormalizer:
    """Network units to robot units: ``y = x * scale + offset``, per channel."""

    feature: Feature
    mode: NormMode
    scale: F32
    offset: F32

    def affine(self) -> tuple[F32, F32]:
        """``(scale, offset)``, float32 ``[C]``."""
        return self.scale, self.offset

    def inverse(self) -> Normalizer:
        """Robot units to network units; a channel that has one value only becomes 0."""
        return Normalizer(
            self.feature, self.mode, self.offset, np.where(self.scale == 0, np.float32(1), self.scale)
        )


def make_normalizer(
    feature: Feature, mode: NormMode, stats: Statistics, eps: float, source: str
) -> Normalizer:
    """The normalizer of ``feature``; ``source`` names the statistics' file in errors."""
    if mode is NormMode.IDENTITY:
        return Normalizer(feature, mode, _filled(feature, 0.0), _filled(feature, 1.0))
    first, second = _pair(feature, mode, stats, source)
    if mode is NormMode.MEAN_STD:
        return Normalizer(feature, mode, first, _divisor(feature, mode, second + np.float32(eps), source))
    centre, half, flat = _range(first, second, eps)
    shift = np.where(flat, np.float32(-1), np.float32(0)) if flat.any() else None
    divisor = _divisor(feature, mode, half, source)
    return Normalizer(feature, mode, np.where(flat, first, centre), divisor, shift)


def make_unnormalizer(
    feature: Feature, mode: NormMode, stats: Statistics, eps: float, source: str
) -> Unnormalizer:
    """The inverse for an output ``feature``; ``source`` names the statistics' file in errors."""
    if mode is NormMode.IDENTITY:
        return Unnormalizer(feature, mode, _filled(feature, 1.0), _filled(feature, 0.0))
    first, second = _pair(feature, mode, stats, source)
    if mode is NormMode.MEAN_STD:
        return Unnormalizer(feature, mode, second, first)
    centre, half, _ = _range(first, second, eps)
    return Unnormalizer(feature, mode, half, centre)


def _filled(feature: Feature, value: float) -> F32:
    return np.full(feature.channels, value, np.float32)


def _divisor(feature: Feature, mode: NormMode, values: F32, source: str) -> F32:
    """``values``, checked to be none that cannot be divided by: eps may be 0, or lost in rounding."""
    if not values.all():
        channel = int(np.flatnonzero(values == 0)[0])
        names = " and ".join(mode.statistics[1:] if mode is NormMode.MEAN_STD else mode.statistics)
        raise CheckpointError(
            f"{source}: statistics of '{feature.name}': {names} and eps leave nothing to divide by "
            f"in channel {channel}, expected values that {mode.value} can scale by"
        )
    return values


def _range(low: F32, high: F32, eps: float) -> tuple[F32, F32, npt.NDArray[np.bool_]]:
    """Centre and half width of ``[low, high]``, and the channels where both are equal (``eps`` wide)."""
    low64, width = low.astype(np.float64), (high - low).astype(np.float64)
    flat = width == 0
    half = np.where(flat, np.float64(np.float32(eps)), width) / 2
    return (low64 + half).astype(np.float32), half.astype(np.float32), flat


def _pair(feature: Feature, mode: NormMode, stats: Statistics, source: str) -> tuple[F32, F32]:
    first, second = mode.statistics
    return _statistic(feature, mode, first, stats, source), _statistic(feature, mode, second, stats, source)


def _statistic(feature: Feature, mode: NormMode, name: str, stats: Statistics, source: str) -> F32:
    """One statistic as a float32 vector of the feature's channels; images store theirs as ``[C, 1, 1]``."""
    what = f"{source}: statistic '{feature.name}.{name}'"
    if name not in stats:
        present = ", ".join(sorted(stats)) or "none"
        raise CheckpointError(f"{what} is missing, {mode.value} needs it (present: {present})")
    value = stats[name]
    accepted: list[tuple[int, ...]] = [(feature.channels,)]
    if len(feature.shape) > 1:
        accepted.append((feature.channels,) + (1,) * (len(feature.shape) - 1))
    if value.shape not in accepted:
        expected = " or ".join(str(list(shape)) for shape in accepted)
        raise CheckpointError(
            f"{what} has shape {list(value.shape)}, "
            f"expected {expected} for a feature of shape {list(feature.shape)}"
        )
    if not np.isfinite(value).all():
        raise CheckpointError(f"{what} is not finite: {value.ravel().tolist()}")
    if name == "std" and (value < 0).any():
        raise CheckpointError(f"{what} is negative: {value.ravel().tolist()}")
    return np.ascontiguousarray(value.reshape(-1), np.float32)
