"""Which episodes an evaluation runs: seeds, instructions in turn, and instructions put in place of others."""

from __future__ import annotations

from collections.abc import Sequence

from vla_simd_ros.evaluation.world import Episode, EvaluationError

FIRST_SEED = 1_000_000
"""Of the worlds, unless another one is asked for: far from the seeds that demonstrations are made with."""


def plan(
    count: int, instructions: Sequence[str], first_seed: int = FIRST_SEED, by_instruction: bool = False
) -> list[Episode]:
    """So many episodes, the instructions in turn, each with a seed of its own.

    ``by_instruction``: each instruction counts its seeds by itself, and its episodes follow each other.

    Raises:
        EvaluationError: no episodes, or no instructions.
    """
    if count < 1:
        raise EvaluationError(f"{count} episodes, expected at least 1")
    if not instructions:
        raise EvaluationError("no instructions, expected at least one")
    turns = [divmod(number, len(instructions)) for number in range(count)]
    if by_instruction:
        turns.sort(key=lambda turn: turn[1])
    return [
        Episode(
            number=round_ * len(instructions) + place,
            seed=first_seed + (round_ if by_instruction else round_ * len(instructions) + place),
            original=instructions[place],
            instruction=instructions[place],
        )
        for round_, place in turns
    ]


def shuffled(episodes: Sequence[Episode], instructions: Sequence[str]) -> list[Episode]:
    """The same worlds, each with another instruction than its own.

    In every round of all instructions each of them stands in place of one other: the first round puts the
    next one in its place, the second round the one after that, and so on.

    Raises:
        EvaluationError: fewer than two instructions.
    """
    count = len(instructions)
    if count < 2:
        raise EvaluationError(f"{count} instruction cannot be shuffled, expected at least 2")
    places = {instruction: place for place, instruction in enumerate(instructions)}
    return [
        Episode(
            episode.number,
            episode.seed,
            episode.original,
            instructions[(places[episode.original] + _shift(episode.number, count)) % count],
        )
        for episode in episodes
    ]


def _shift(number: int, count: int) -> int:
    return 1 + (number // count) % (count - 1)


def chosen(known: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The instructions asked for, all known ones if none is.

    Raises:
        EvaluationError: one that the world does not know, or one twice.
    """
    for number, text in enumerate(asked):
        if text not in known:
            raise EvaluationError(
                f"instruction '{text}' is unknown here, expected some of: {'; '.join(known)}"
            )
        if text in asked[:number]:
            raise EvaluationError(f"instruction '{text}' is given twice, expected once")
    return list(asked) or list(known)
