"""How the rows that several chunks predict for one control step become the row to execute.

A mode sees the row of each kept chunk for this step, oldest chunk first, so modes that weigh many chunks
fit beside the ones here. ``keep`` says how many chunks, the newest included, it wants to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vla_simd_ros.control.chunk import Rows


class Blending(Protocol):
    """A way to join chunks."""

    keep: int

    def combine(self, rows: Sequence[Rows], since_splice: int) -> Rows:
        """The row to execute.

        Args:
            rows: one row ``[joints]`` per kept chunk, the newest last; at least one. A chunk whose rows
                have run out stands with its last row.
            since_splice: control steps since the newest chunk took over, 0 at its first step.
        """


class Replace:
    """The newest chunk alone."""

    keep = 1

    def combine(self, rows: Sequence[Rows], since_splice: int) -> Rows:
        """The newest chunk's row."""
        return rows[-1]


class Linear:
    """From the previous chunk to the newest one over ``steps`` control steps.

    Raises:
        ValueError: ``steps`` is not positive.
    """

    keep = 2

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"linear blending over {steps} steps, expected at least 1")
        self._steps = steps

    def combine(self, rows: Sequence[Rows], since_splice: int) -> Rows:
        """The weighted mean; the newest row alone from the last blending step on."""
        share = min(1.0, (since_splice + 1) / self._steps)
        if len(rows) == 1 or share >= 1.0:
            return rows[-1]
        blended: Rows = rows[-2] * (1.0 - share) + rows[-1] * share
        return blended


def blending(name: str, steps: int) -> Blending:
    """The mode with this name; ``steps`` is the length of a linear blend.

    Raises:
        ValueError: unknown name, or a bad length.
    """
    if name == "replace":
        return Replace()
    if name == "linear":
        return Linear(steps)
    raise ValueError(f"blending is '{name}', expected 'replace' or 'linear'")
