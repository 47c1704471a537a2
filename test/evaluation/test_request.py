"""What is asked for: the episodes and limits that follow from it, and what is refused."""

from __future__ import annotations

import pytest

from vla_simd_ros.evaluation.episodes import FIRST_SEED
from vla_simd_ros.evaluation.request import EPISODES, Request
from vla_simd_ros.evaluation.world import EvaluationError, Limits

TEXTS = ("one", "two", "three")
TASK_NS, LIBERO_NS = 33_333_333, 50_000_000


def test_the_simulated_arm_has_episodes_with_seeds_of_their_own() -> None:
    trials = Request().trials(TEXTS)
    assert list(trials) == [False]
    assert [episode.seed for episode in trials[False]] == [FIRST_SEED + i for i in range(EPISODES)]


def test_libero_has_twenty_initial_states_of_each_task_one_task_after_the_other() -> None:
    episodes = Request(world="libero-goal", checkpoints=("a",)).trials(TEXTS)[False]
    assert [episode.seed for episode in episodes] == list(range(20)) * 3
    assert [episode.original for episode in episodes[:21]] == ["one"] * 20 + ["two"]


def test_shuffled_instructions_beside_the_others_or_alone() -> None:
    beside = Request(episodes=6, shuffle="beside").trials(TEXTS)
    assert list(beside) == [False, True]
    assert [e.seed for e in beside[True]] == [e.seed for e in beside[False]]
    assert list(Request(episodes=6, shuffle="only").trials(TEXTS)) == [True]


def test_some_instructions_and_a_seed() -> None:
    episodes = Request(episodes=4, first_seed=7, instructions=("two",)).trials(TEXTS)[False]
    assert [(e.seed, e.instruction) for e in episodes] == [(7, "two"), (8, "two"), (9, "two"), (10, "two")]


def test_limits() -> None:
    assert Request().limits(TASK_NS) == Limits(steps=600, settle=15)
    assert Request(seconds=2.0).limits(TASK_NS) == Limits(steps=60, settle=15)
    libero = Request(world="libero-long", checkpoints=("a",))
    assert libero.limits(LIBERO_NS) == Limits(steps=520, settle=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"world": "moon"}, "world 'moon' is unknown, expected one of task, libero-spatial"),
        ({"world": "libero-goal"}, "the expert knows no other world than 'task', got 'libero-goal'"),
        ({"episodes": 0}, "0 episodes, expected at least 1"),
        ({"seconds": 0.0}, "0.0 s for an episode"),
        ({"seconds": float("nan")}, "nan s for an episode"),
        (
            {"shuffle": "only", "world": "libero-10", "checkpoints": ("a",)},
            "the tasks of 'libero-10' lack each other's things, expected libero-goal to shuffle in",
        ),
        ({"shuffle": "twice"}, "shuffle is 'twice', expected one of beside, only"),
    ],
)
def test_what_cannot_be_asked_for(given: dict[str, object], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        Request(**given)  # type: ignore[arg-type]


def test_an_instruction_that_the_world_does_not_know() -> None:
    with pytest.raises(EvaluationError, match="'four' is unknown here"):
        Request(instructions=("four",)).trials(TEXTS)
