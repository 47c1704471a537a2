"""How a new chunk is joined to the plan in execution, when it takes over.

The plan is what earlier chunks have become. For every row of the new chunk that can still be executed, a way
of blending sees that row and the row that the plan would execute at the same control step. The result is the
new plan, so a chain of chunks is joined one after the other, as their number and memory require no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.chunk import Rows

ACT_COEFFICIENT = 0.01
"""Decay of the weights of ACT's temporal ensemble, per chunk."""

LARGEST_COEFFICIENT = 10.0
"""A larger decay leaves nothing but the oldest chunk, or the newest one."""


@dataclass(frozen=True, eq=False)
class Splice:
    """A new chunk beside the plan in execution, n rows of each for the same control steps.

    Attributes:
        old: rows of the plan, float64 ``[n, joints]``; its last one after it has run out.
        new: rows of the chunk, likewise.
        covered: whether the plan has a row for that control step, ``[n]``.
        joined: how many chunks the plan's row was joined from, ``[n]``.
        steps: control steps since the chunk took over, ``[n]``, 0 at the first one.
        continued: whether the chunk was predicted as the continuation of the rows executed up to here.
    """

    old: Rows
    new: Rows
    covered: npt.NDArray[np.bool_]
    joined: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    continued: bool = False


class Blending(Protocol):
    """A way to join a chunk to the plan."""

    def join(self, splice: Splice) -> Rows:
        """The rows to execute, ``[n, joints]``."""


class Replace:
    """The newest chunk alone."""

    def join(self, splice: Splice) -> Rows:
        """The chunk's rows."""
        return splice.new


class Linear:
    """From the plan to the new chunk over ``steps`` control steps.

    A plan that has run out stands on its last row meanwhile.

    Raises:
        ValueError: ``steps`` is not positive.
    """

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"linear blending over {steps} steps, expected at least 1")
        self._steps = steps

    def join(self, splice: Splice) -> Rows:
        """The weighted mean; the chunk's rows alone from the last blending step on."""
        share = np.minimum((splice.steps + 1) / self._steps, 1.0)
        return _mean(splice.old, splice.new, share)


class RealTime:
    """For real-time chunking: a chunk that continues the rows executed goes on; another one is led over to.

    A policy that takes a prefix (:mod:`vla_simd_ros.control.committed`) predicts continuations as long as
    its chunk arrives while the prefix lasts. All others are joined linearly over ``steps`` control steps.
    """

    def __init__(self, steps: int) -> None:
        self._linear = Linear(steps)

    def join(self, splice: Splice) -> Rows:
        """The chunk's rows, or the way to them."""
        return splice.new if splice.continued else self._linear.join(splice)


class Aggregate:
    """A fixed share of the plan and the rest of the new chunk, wherever they overlap."""

    def __init__(self, new_share: float) -> None:
        self._new_share = new_share

    def join(self, splice: Splice) -> Rows:
        """The weighted mean where the plan has rows, the chunk's rows elsewhere."""
        return _mean(splice.old, splice.new, np.where(splice.covered, self._new_share, 1.0))


class TemporalEnsemble:
    """ACT's mean of all chunks that predict a control step, weighted exp(-m i), i = 0 for the oldest one.

    Raises:
        ValueError: the coefficient m is not a number of moderate size.
    """

    def __init__(self, coefficient: float) -> None:
        if not abs(coefficient) <= LARGEST_COEFFICIENT:
            raise ValueError(
                f"temporal ensemble with coefficient {coefficient}, "
                f"expected -{LARGEST_COEFFICIENT:g} to {LARGEST_COEFFICIENT:g}"
            )
        self._coefficient = coefficient

    def join(self, splice: Splice) -> Rows:
        """The mean with one more chunk in it."""
        chunks = np.where(splice.covered, splice.joined, 0) + 1
        return _mean(splice.old, splice.new, self._newest_share(chunks))

    def _newest_share(self, chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Share of the newest of n chunks: exp(-m (n-1)) / sum of exp(-m i), as 1 / sum of exp(m i)."""
        m = self._coefficient
        if m == 0.0:
            return 1.0 / chunks
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1(m) / np.expm1(m * chunks))


def _mean(old: Rows, new: Rows, new_share: npt.NDArray[np.float64]) -> Rows:
    """Exactly the new row where its share is 1."""
    share = new_share[:, None]
    mean: Rows = np.where(share >= 1.0, new, old * (1.0 - share) + new * share)
    return mean


# The shares of LeRobot's asynchronous client, under its names.
_NEW_SHARES = {"latest_only": 1.0, "weighted_average": 0.7, "average": 0.5, "conservative": 0.3}

BLENDINGS = ("replace", "linear", "real_time", "temporal_ensemble", *_NEW_SHARES)
"""Names of the ways to blend."""


def blending(name: str, steps: int, coefficient: float = ACT_COEFFICIENT) -> Blending:
    """The way to blend with this name, one of :data:`BLENDINGS`.

    Args:
        name: its name.
        steps: length of a linear blend in control steps.
        coefficient: decay of a temporal ensemble.

    Raises:
        ValueError: unknown name, or a bad length or coefficient.
    """
    if name in _NEW_SHARES:
        return Aggregate(_NEW_SHARES[name])
    if name == "replace":
        return Replace()
    if name == "linear":
        return Linear(steps)
    if name == "real_time":
        return RealTime(steps)
    if name == "temporal_ensemble":
        return TemporalEnsemble(coefficient)
    raise ValueError(f"blending is '{name}', expected one of {', '.join(BLENDINGS)}")
