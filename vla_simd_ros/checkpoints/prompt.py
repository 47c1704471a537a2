"""Instructions that a policy reads as part of a longer text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_STATE = "{state}"


@dataclass(frozen=True)
class Prompt:
    """What an instruction is written into: the texts ``before`` and ``after`` it, of which the second may
    have a place for the robot's state, "{state}". ``cleaned`` is what becomes of the instruction; the mark
    ``begin`` comes first. ``widest_state`` is a state that takes the most tokens."""

    begin: str
    before: str
    after: str
    cleaned: Callable[[str], str]
    widest_state: str = ""

    def written(self, instruction: str, state: str = "") -> str:
        """The whole text, without the mark."""
        return self.before + self.cleaned(instruction) + self.after.replace(_STATE, state)


def in_one_line(instruction: str) -> str:
    """An instruction without line feeds and underscores, which stand for spaces."""
    return instruction.strip().replace("_", " ").replace("\n", " ")
