"""Checks on the stamps of sensor messages: a bad stamp is counted and its message is not used."""

from __future__ import annotations

import enum
from collections import Counter


class StampFault(str, enum.Enum):
    """What is wrong with a stamp."""

    ZERO = "zero"
    FUTURE = "future"
    BACKWARDS = "backwards"
    REPEATED = "repeated"


class StampValidator:
    """Checks the stamps of one source, in the order of arrival.

    Attributes:
        faults: number of stamps refused so far, by fault.
    """

    def __init__(self, source: str, future_tolerance_ns: int) -> None:
        self._source = source
        self._tolerance_ns = future_tolerance_ns
        self._last_ns: int | None = None
        self.faults: Counter[StampFault] = Counter()
        self.last_message = ""

    def check(self, stamp_ns: int, now_ns: int) -> StampFault | None:
        """Judge a stamp that arrived at ``now_ns``; None means it is good and becomes the newest one.

        After a fault, ``last_message`` says in words what was wrong.
        """
        fault = self._judge(stamp_ns, now_ns)
        if fault is None:
            self._last_ns = stamp_ns
        else:
            self.faults[fault] += 1
            self.last_message = self._describe(fault, stamp_ns, now_ns)
        return fault

    def reset(self) -> None:
        """Forget the newest stamp, after a jump of the clock; the counts stay."""
        self._last_ns = None

    def _judge(self, stamp_ns: int, now_ns: int) -> StampFault | None:
        if stamp_ns <= 0:
            return StampFault.ZERO
        if stamp_ns > now_ns + self._tolerance_ns:
            return StampFault.FUTURE
        if self._last_ns is not None and stamp_ns < self._last_ns:
            return StampFault.BACKWARDS
        if stamp_ns == self._last_ns:
            return StampFault.REPEATED
        return None

    def _describe(self, fault: StampFault, stamp_ns: int, now_ns: int) -> str:
        stamp = f"{self._source}: stamp {stamp_ns * 1e-9:.6f} s"
        if fault is StampFault.ZERO:
            return f"{self._source}: the stamp is zero, expected the capture time"
        if fault is StampFault.FUTURE and now_ns <= 0:
            return f"{stamp} cannot be judged, the clock is at zero: does anything set /clock (use_sim_time)?"
        if fault is StampFault.FUTURE:
            return (
                f"{stamp} lies {(stamp_ns - now_ns) * 1e-6:.1f} ms in the future, "
                f"expected at most {self._tolerance_ns * 1e-6:.1f} ms; are the clocks synchronized?"
            )
        if fault is StampFault.BACKWARDS:
            last_ns = self._last_ns or 0
            return f"{stamp} is {(last_ns - stamp_ns) * 1e-6:.1f} ms before the one already used"
        return f"{stamp} was used already"
