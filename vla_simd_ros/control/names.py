"""Lists of names in error messages: those of a message may be of any length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_MOST_NAMES = 12
_MOST_CHARACTERS = 64


def repeated(names: Sequence[str]) -> list[str]:
    """The names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def shown(names: Sequence[str]) -> str:
    """The names as a text: the first few of many."""
    text = str([name[:_MOST_CHARACTERS] for name in names[:_MOST_NAMES]])
    return text if len(names) <= _MOST_NAMES else f"{text} and {len(names) - _MOST_NAMES} more"
