"""Joint positions by time: the state at a frame's capture time, rather than the latest one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.chunk import LARGEST_VALUE
from vla_simd_ros.control.names import repeated, shown

Positions = npt.NDArray[np.float64]


class JointStateError(Exception):
    """A joint state message that cannot be used; the text names the joint and the value."""


class JointStateUnavailable(Exception):
    """No joint state for the time asked for; the text says what is there instead."""


def select_joints(names: Sequence[str], positions: Sequence[float], joints: Sequence[str]) -> Positions:
    """Pick ``joints`` out of a message's names and positions, in the order of ``joints``.

    Joints of the message that are not asked for are passed over: other parts of a robot share the topic.

    Raises:
        JointStateError: a joint is missing, listed twice or not finite, or the lengths differ.
    """
    if len(positions) != len(names):
        raise JointStateError(f"joint state has {len(names)} names but {len(positions)} positions")
    index = {name: i for i, name in enumerate(names)}
    if len(index) != len(names):
        raise JointStateError(f"joint state lists {shown(repeated(names))} more than once")
    missing = [joint for joint in joints if joint not in index]
    if missing:
        raise JointStateError(f"joint state lacks {missing}, expected {list(joints)}, got {shown(names)}")
    picked = np.array([positions[index[joint]] for joint in joints], dtype=np.float64)
    plausible = np.abs(picked) <= LARGEST_VALUE
    if not plausible.all():
        bad = int(np.argmin(plausible))
        raise JointStateError(
            f"joint state: '{joints[bad]}' is {picked[bad]}, "
            f"expected a finite number of at most {LARGEST_VALUE:g}"
        )
    return picked


class JointBuffer:
    """A time-indexed buffer of joint positions.

    Args:
        keep_ns: how far back samples are kept behind the newest one.
        max_gap_ns: two samples further apart than this are not interpolated between.
        max_extrapolation_ns: how far outside the samples the nearest one still stands for the state.
            It is held, not extended by its velocity: over such a short time that would add noise.
    """

    def __init__(self, keep_ns: int, max_gap_ns: int, max_extrapolation_ns: int) -> None:
        self._keep_ns = keep_ns
        self._max_gap_ns = max_gap_ns
        self._max_extrapolation_ns = max_extrapolation_ns
        self._stamps: list[int] = []
        self._samples: list[Positions] = []

    def add(self, stamp_ns: int, positions: Positions) -> None:
        """Append a sample.

        Raises:
            JointStateError: the stamp is not newer than the newest sample.
        """
        if self._stamps and stamp_ns <= self._stamps[-1]:
            raise JointStateError(
                f"joint state stamp {stamp_ns} ns is not newer than the last one, {self._stamps[-1]} ns"
            )
        self._stamps.append(stamp_ns)
        self._samples.append(positions)
        old = bisect_left(self._stamps, stamp_ns - self._keep_ns)
        del self._stamps[:old], self._samples[:old]

    def at(self, time_ns: int) -> Positions:
        """Positions at a time, linear between the two samples around it.

        Raises:
            JointStateUnavailable: no sample, a gap that is too long, or a time too far outside.
        """
        if not self._stamps:
            raise JointStateUnavailable("no joint state has been received")
        after = bisect_left(self._stamps, time_ns)
        if after < len(self._stamps) and self._stamps[after] == time_ns:
            exact: Positions = self._samples[after].copy()
            return exact
        if after == 0:
            return self._nearest(0, self._stamps[0] - time_ns, "before the oldest")
        if after == len(self._stamps):
            return self._nearest(-1, time_ns - self._stamps[-1], "after the newest")
        return self._between(after, time_ns)

    def find(self, time_ns: int) -> Positions | None:
        """As :meth:`at`, None where there is no joint state for that time."""
        try:
            return self.at(time_ns)
        except JointStateUnavailable:
            return None

    def newest(self) -> tuple[int, Positions] | None:
        """Stamp and positions of the newest sample, or None."""
        return (self._stamps[-1], self._samples[-1].copy()) if self._stamps else None

    def clear(self) -> None:
        """Forget all samples, after a jump of the clock."""
        self._stamps.clear()
        self._samples.clear()

    def _nearest(self, index: int, distance_ns: int, where: str) -> Positions:
        if distance_ns > self._max_extrapolation_ns:
            raise JointStateUnavailable(
                f"the capture time lies {distance_ns * 1e-6:.1f} ms {where} joint state, "
                f"expected at most {self._max_extrapolation_ns * 1e-6:.1f} ms"
            )
        nearest: Positions = self._samples[index].copy()
        return nearest

    def _between(self, after: int, time_ns: int) -> Positions:
        start, end = self._stamps[after - 1], self._stamps[after]
        if end - start > self._max_gap_ns:
            raise JointStateUnavailable(
                f"joint states around the capture time are {(end - start) * 1e-6:.1f} ms apart, "
                f"expected at most {self._max_gap_ns * 1e-6:.1f} ms"
            )
        share = (time_ns - start) / (end - start)
        return self._samples[after - 1] * (1.0 - share) + self._samples[after] * share
