"""The log of a training run beside that of an earlier run of the same recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vla_simd_ros.training.recipe import RecipeError
from vla_simd_ros.training.trainer import read_log

LOSSES = ("l1", "cross_entropy", "held_out_l1")


@dataclass(frozen=True)
class Followed:
    """A loss of both runs after as many samples."""

    samples: int
    loss: str
    own: float
    earlier: float

    @property
    def difference(self) -> float:
        """How much larger this run's is, as a share of the earlier one's."""
        return self.own / self.earlier - 1.0

    def __str__(self) -> str:
        return f"{self.samples:>9} {self.loss:<12} {self.own:.4f} {self.earlier:.4f} {self.difference:+.1%}"


def followed(own: Path, earlier: Path) -> list[Followed]:
    """The losses that both logs tell for the same number of samples, in their order.

    Raises `RecipeError` for a log that is none, or two that have no number of samples in common.
    """
    logs = [read_losses(path) for path in (own, earlier)]
    common = [key for key in logs[0] if key in logs[1]]
    if not common:
        told = ", ".join(str(samples) for samples in sorted({samples for samples, _ in logs[1]}))
        raise RecipeError(f"{earlier}: tells losses after {told} samples, {own} after none of these")
    return [Followed(samples, loss, *(log[samples, loss] for log in logs)) for samples, loss in common]


def read_losses(path: Path) -> dict[tuple[int, str], float]:
    """A log's losses by the number of samples seen and the name. Raises `RecipeError` where it is none."""
    try:
        return {
            (int(row["samples"]), loss): float(row[loss])
            for row in read_log(path)
            for loss in LOSSES
            if row.get(loss) not in (None, "", "nan")
        }
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RecipeError(f"{path}: is no log of a training run ({error})") from error
