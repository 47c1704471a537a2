"""Episodes of the policy node: an epoch number and the instruction that holds in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Episode:
    """An epoch and its instruction; None for a policy that takes none."""

    epoch: int
    instruction: str | None


class EpochCounter:
    """Numbers epochs by the clock's nanoseconds, strictly increasing even when the clock goes backwards."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, now_ns: int) -> int:
        """The number of an epoch that starts now."""
        self._last = max(now_ns, self._last + 1)
        return self._last
