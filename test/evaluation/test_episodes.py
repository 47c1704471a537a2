"""Episodes: seeds of their own, instructions in turn, and permutations without a fixed point."""

from __future__ import annotations

from collections import Counter

import pytest

from vla_simd_ros.evaluation.episodes import chosen, plan, shuffled
from vla_simd_ros.evaluation.world import EvaluationError

TEXTS = ("one", "two", "three", "four")


def test_every_episode_has_a_seed_and_instructions_come_in_turn() -> None:
    episodes = plan(10, TEXTS, first_seed=70)
    assert [episode.seed for episode in episodes] == list(range(70, 80))
    assert [episode.number for episode in episodes] == list(range(10))
    assert Counter(episode.instruction for episode in episodes) == {"one": 3, "two": 3, "three": 2, "four": 2}
    assert not any(episode.shuffled for episode in episodes)


def test_shuffling_keeps_the_world_and_changes_every_instruction() -> None:
    episodes = plan(24, TEXTS)
    others = shuffled(episodes, TEXTS)
    assert [(e.seed, e.original) for e in others] == [(e.seed, e.original) for e in episodes]
    assert all(other.shuffled for other in others)
    # 24 episodes are six rounds of four: every ordered pair of different ones occurs exactly twice.
    pairs = Counter((other.original, other.instruction) for other in others)
    assert set(pairs.values()) == {2} and len(pairs) == 12


def test_each_round_is_a_permutation() -> None:
    others = shuffled(plan(12, TEXTS), TEXTS)
    for start in (0, 4, 8):
        assert sorted(other.instruction for other in others[start : start + 4]) == sorted(TEXTS)


def test_some_instructions_are_chosen() -> None:
    assert chosen(TEXTS, []) == list(TEXTS)
    assert chosen(TEXTS, ["three", "one"]) == ["three", "one"]


def test_what_cannot_be_planned() -> None:
    with pytest.raises(EvaluationError, match="0 episodes, expected at least 1"):
        plan(0, TEXTS)
    with pytest.raises(EvaluationError, match="no instructions"):
        plan(3, ())
    with pytest.raises(EvaluationError, match="1 instruction cannot be shuffled"):
        shuffled(plan(2, TEXTS[:1]), TEXTS[:1])
    with pytest.raises(EvaluationError, match="'five' is unknown here, expected some of: one; two"):
        chosen(TEXTS, ["five"])
    with pytest.raises(EvaluationError, match="'one' is given twice"):
        chosen(TEXTS, ["one", "two", "one"])
