"""Instructions that a policy reads as part of a longer text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """What an instruction is written into: the texts ``before`` and ``after`` it, in ``lower_case`` if so;
    the mark ``begin`` comes first."""

    begin: str
    before: str
    after: str
    lower_case: bool

    def written(self, instruction: str) -> str:
        """The whole text, without the mark."""
        return self.before + (instruction.lower() if self.lower_case else instruction) + self.after
