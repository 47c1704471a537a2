"""Animations of what happened: a few successes and failures of each condition, and one for a front page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vla_simd_ros.evaluation.film import beside, film, write_gif, write_small_gif
from vla_simd_ros.evaluation.rollout import Result
from vla_simd_ros.evaluation.session import Outcome, Say
from vla_simd_ros.evaluation.world import EvaluationError, World

EXAMPLES = 3
MOST_BYTES = 3_000_000
"""Of the animation for a front page."""
_RATE = 10.0
_COLUMNS = 3


class Gallery:
    """Writes the animations of an evaluation.

    Args:
        stage: makes a world to run episodes again in, of the world that they ran in.
        folder: for animations of successes and failures; None: none are wanted.
        animation: file for one animation of a success with each instruction; None: it is not wanted.
        say: told what has been written.
    """

    def __init__(
        self, stage: Callable[[World], World], folder: Path | None, animation: Path | None, say: Say
    ) -> None:
        self._stage = stage
        self._folder = folder
        self._animation = animation
        self._say = say

    def show(self, world: World, outcome: Outcome) -> None:
        """Write what is wanted of a condition, whose world is still there."""
        if self._folder is None and self._animation is None:
            return
        stage = self._stage(world)
        try:
            if self._folder is not None:
                write_examples(stage, outcome, self._folder, self._say)
            if self._animation is not None:
                self._animate(stage, outcome, self._animation)
        finally:
            if stage is not world:
                stage.close()

    def _animate(self, stage: World, outcome: Outcome, path: Path) -> None:
        """Write the animation of the first condition; that there is none is no reason to lose the counts."""
        self._animation = None
        try:
            size = write_animation(stage, outcome.results, path)
        except EvaluationError as error:
            self._say(f"no animation: {error}")
            return
        self._say(f"wrote {path}, {size / 1e6:.2f} MB")


def write_examples(stage: World, outcome: Outcome, folder: Path, say: Say) -> list[Path]:
    """Animations of the first successes and failures of a condition; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for verdict, wanted in (("success", True), ("failure", False)):
        found = [result for result in outcome.results if result.success is wanted and result.commands]
        for number, result in enumerate(found[:EXAMPLES], start=1):
            path = folder / f"{_slug(str(outcome.condition))}-{verdict}{number}.gif"
            write_gif(list(film(stage, result, _RATE)), path, _RATE)
            say(f"wrote {path}")
            paths.append(path)
    return paths


def write_animation(stage: World, results: Sequence[Result], path: Path, most_bytes: int = MOST_BYTES) -> int:
    """One animation of a success with each instruction, side by side; its size in bytes.

    Raises:
        EvaluationError: no episode succeeded, or the animation is too large.
    """
    firsts: dict[str, Result] = {}
    for result in results:
        if result.success:
            firsts.setdefault(result.episode.instruction, result)
    if not firsts:
        raise EvaluationError(f"{path}: no episode succeeded, expected at least one to show")
    films = [list(film(stage, result, _RATE)) for result in firsts.values()]
    return write_small_gif(beside(films, min(_COLUMNS, len(films))), path, _RATE, most_bytes)


def _slug(name: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    return "-".join(words)
