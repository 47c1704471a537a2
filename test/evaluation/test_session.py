"""Conditions over the same episodes: counts, names, and signs of life."""

from __future__ import annotations

import pytest
from small_world import LEFT, RIGHT, BrokenPolicy, DeafPolicy, LinePolicy, LineWorld

from vla_simd_ros import heartbeat
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.evaluation.episodes import plan, shuffled
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.session import Condition, Outcome, evaluate, labels
from vla_simd_ros.evaluation.world import Episode, Limits

TEXTS = (LEFT, RIGHT)


def outcome(policy: LinePolicy, is_shuffled: bool = False, count: int = 10) -> Outcome:
    episodes = plan(count, TEXTS)
    trials = shuffled(episodes, TEXTS) if is_shuffled else episodes
    execution = Execution()
    condition = Condition("line", "fp32", execution, is_shuffled)
    return evaluate(
        condition, LineWorld(), PolicyPilot(policy, execution), trials, Limits(60), lambda _: None
    )


def test_a_policy_that_does_as_it_is_told() -> None:
    found = outcome(LinePolicy())
    assert (found.success.successes, found.success.trials) == (10, 10)
    assert found.elsewhere.successes == 0
    assert found.original is None
    told = outcome(LinePolicy(), is_shuffled=True)
    assert told.success.successes == 10
    assert told.original is not None and told.original.successes == 0


def test_a_policy_that_does_not_listen() -> None:
    found = outcome(DeafPolicy())
    assert found.success.successes == found.elsewhere.successes == 5
    left, right = found.of(LEFT), found.of(RIGHT)
    assert left is not None and right is not None
    assert (left.successes, right.successes) == (5, 0)
    assert found.of("go up") is None
    told = outcome(DeafPolicy(), is_shuffled=True)
    assert told.original is not None and told.original.successes == 5


def test_a_policy_that_does_nothing_usable() -> None:
    found = outcome(BrokenPolicy())
    assert found.success.successes == found.elsewhere.successes == 0
    assert all("not" not in result.failure[:3] for result in found.results)


def test_conditions_are_named_by_what_differs() -> None:
    execution = Execution("lagged", 8, None, Delay(150.0))
    fast = Condition("impact", "fp32", execution)
    assert labels([fast]) == ["impact"]
    assert labels([fast, Condition("impact", "int8", execution)]) == ["fp32", "int8"]
    other = Execution("lagged", 0, 4, Delay(0.0, measured=True))
    assert labels([fast, Condition("impact", "fp32", other)]) == [
        "8 rows, back to back, delay 150 ms",
        "all rows, queried at 4, delay measured",
    ]
    late = Condition("impact", "fp32", Execution("lagged", 8, None, Delay(150.0), QueryPacing.JUST_IN_TIME))
    assert labels([fast, late]) == ["back to back", "queried just in time"]
    assert labels([Condition("expert"), Condition("expert", shuffled=True)]) == ["as they are", "shuffled"]
    assert str(fast) == "impact, fp32, lagged, 8 rows, back to back, delay 150 ms, as they are"


def test_a_slow_episode_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Slow(LineWorld):
        def act(self, command: object) -> None:
            while not said:
                pass

    monkeypatch.setattr(heartbeat, "PERIOD_S", 0.01)
    execution = Execution()
    pilot = PolicyPilot(LinePolicy(), execution)
    evaluate(Condition("line", "", execution), Slow(), pilot, plan(1, TEXTS), Limits(2), said.append)
    assert "episode 1 of 1, control step 0; 0 of 0 succeeded" in said[0]
    assert said[-1] == "  0/1, 0.0% (0% to 79%) of the episodes succeeded"


class Interrupted(LineWorld):
    """Somebody presses Ctrl-C at the start of an episode."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def begin(self, episode: Episode) -> None:
        if episode.number == self._at:
            raise KeyboardInterrupt
        super().begin(episode)


def test_an_interruption_keeps_the_episodes_before_it() -> None:
    execution = Execution()
    pilot = PolicyPilot(LinePolicy(), execution)
    condition = Condition("line", "", execution)
    found = evaluate(condition, Interrupted(2), pilot, plan(5, TEXTS), Limits(60), lambda _: None)
    assert found.interrupted and found.success.trials == 2
    with pytest.raises(KeyboardInterrupt):
        evaluate(condition, Interrupted(0), pilot, plan(5, TEXTS), Limits(60), lambda _: None)
