"""The control grid: which control step a timer call stands for."""

from __future__ import annotations

LATE_NS = 5_000_000
"""A control step that runs later than this after its time counts as late."""


class ControlGrid:
    """Snaps the calls of a control timer to steps of exactly one period.

    A timer's calls jitter; rows and limits are meant for steps of one period. A call that runs late counts
    for the step it was meant for, so a late call followed by a punctual one is never two steps within a
    fraction of a period.

    Attributes:
        steps: control steps so far, with those that were left out.
        late: those of them that ran more than `LATE_NS` after their time, or were left out.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._start_ns: int | None = None
        self._slot = -1
        self.steps = 0
        self.late = 0

    def next(self, now_ns: int) -> int | None:
        """The nominal time of the control step at ``now_ns``; None when that step was done already."""
        if self._start_ns is None:
            self._start_ns = now_ns
        slot = round((now_ns - self._start_ns) / self._period_ns)
        if slot <= self._slot:
            return None
        left_out = slot - self._slot - 1
        self._slot = slot
        early_ns = self._start_ns + slot * self._period_ns - now_ns
        self.steps += left_out + 1
        self.late += left_out + (early_ns < -LATE_NS)
        if 8 * early_ns > 3 * self._period_ns:
            # The first call was late: with the grid as late as that, jitter would move punctual calls to and
            # fro between two steps.
            self._start_ns -= early_ns
        return self._start_ns + slot * self._period_ns

    @property
    def time_ns(self) -> int:
        """The nominal time of the last step; 0 before the first one."""
        return 0 if self._start_ns is None else self._start_ns + self._slot * self._period_ns

    def until_next(self, now_ns: int) -> int:
        """Nanoseconds from ``now_ns`` to the time of the next step to do: 0 where it is overdue, and a period
        before the first step."""
        if self._start_ns is None:
            return self._period_ns
        slot = max(self._slot + 1, round((now_ns - self._start_ns) / self._period_ns))
        return max(0, self._start_ns + slot * self._period_ns - now_ns)

    def reset(self) -> None:
        """Start anew with the next call, after a jump of the clock."""
        self._start_ns = None
        self._slot = -1
