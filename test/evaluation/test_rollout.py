"""An episode ends with success, with its time, or with a policy that cannot go on."""

from __future__ import annotations

from small_world import LEFT, RIGHT, BrokenPolicy, DeafPolicy, LinePolicy, LineWorld

from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.rollout import Result, run_episode
from vla_simd_ros.evaluation.world import Episode, Limits


def episode(original: str = RIGHT, instruction: str = RIGHT) -> Episode:
    return Episode(4, 11, original, instruction)


def ran(policy: LinePolicy, trial: Episode, limits: Limits) -> Result:
    return run_episode(LineWorld(), PolicyPilot(policy, Execution()), trial, limits)


def test_success_ends_the_episode() -> None:
    found = ran(LinePolicy(), episode(), Limits(100))
    assert found.success and not found.failure
    assert found.steps in (20, 21)  # 1.0 from near the middle by 0.05
    assert len(found.commands) == found.steps == found.counts.executed_rows
    assert found.reached == {RIGHT}
    assert not found.state


def test_a_goal_must_last() -> None:
    assert ran(LinePolicy(), episode(), Limits(100, settle=6)).steps in (25, 26)


def test_a_goal_left_again_too_soon_does_not_count() -> None:
    class Passing(LineWorld):
        def achieved(self) -> frozenset[str]:
            return frozenset([RIGHT] if self.steps % 3 else [])

    found = run_episode(Passing(), PolicyPilot(LinePolicy(), Execution()), episode(), Limits(50, settle=3))
    assert not found.success and not found.reached


def test_time_ends_an_episode_and_its_last_state_is_kept() -> None:
    found = ran(LinePolicy(), episode(), Limits(10))
    assert (found.success, found.steps, found.failure) == (False, 10, "not within 10 steps")
    assert 0.45 < found.state["place"][0] < 0.55


def test_the_goal_of_the_instruction_counts_and_the_original_one_is_told() -> None:
    found = ran(LinePolicy(), episode(original=LEFT, instruction=RIGHT), Limits(60))
    assert found.success and not found.original_reached
    deaf = ran(DeafPolicy(), episode(original=LEFT, instruction=RIGHT), Limits(60))
    assert not deaf.success and deaf.original_reached
    assert deaf.failure == "not within 60 steps; reached 'go left'"


def test_a_policy_whose_output_is_not_finite_fails_with_the_reason() -> None:
    found = ran(BrokenPolicy(), episode(), Limits(60))
    assert not found.success and found.steps == 0
    assert "is nan, expected a finite number" in found.failure
    assert found.counts.queries == 1


def test_the_watcher_sees_every_step() -> None:
    seen: list[int] = []
    run_episode(LineWorld(), PolicyPilot(LinePolicy(), Execution()), episode(), Limits(5), seen.append)
    assert seen == [0, 1, 2, 3, 4]
