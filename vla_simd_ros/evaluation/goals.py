"""Which goals have been fulfilled for long enough."""

from __future__ import annotations


class Goals:
    """Takes what is fulfilled from time to time, in any unit of time.

    Args:
        settle: a goal is reached when it has been fulfilled for so long without a break.

    Attributes:
        reached: the instructions whose goals have been reached.
    """

    def __init__(self, settle: float) -> None:
        self._settle = settle
        self._since: dict[str, float] = {}
        self.reached: set[str] = set()

    def see(self, fulfilled: frozenset[str], time: float) -> None:
        """Take the goals that are fulfilled at a time."""
        self._since = {goal: self._since.get(goal, time) for goal in fulfilled}
        self.reached.update(goal for goal, since in self._since.items() if time - since >= self._settle)

    def missed(self, steps: int) -> str:
        """Why an episode of so many control steps is no success, in words."""
        others = ", ".join(f"'{text}'" for text in sorted(self.reached))
        return f"not within {steps} steps" + (f"; reached {others}" if others else "")
