"""Goals count when they last."""

from __future__ import annotations

from vla_simd_ros.evaluation.goals import Goals

UP, DOWN = "up", "down"


def test_a_goal_is_reached_when_it_has_lasted() -> None:
    goals = Goals(0.5)
    for time, fulfilled in ((0.0, {UP}), (0.4, {UP, DOWN}), (0.49, {UP})):
        goals.see(frozenset(fulfilled), time)
    assert not goals.reached
    goals.see(frozenset({UP}), 0.5)
    assert goals.reached == {UP}
    goals.see(frozenset(), 0.6)
    assert goals.reached == {UP}


def test_a_break_starts_anew() -> None:
    goals = Goals(0.5)
    for time, fulfilled in ((0.0, {UP}), (0.3, set()), (0.4, {UP}), (0.8, {UP})):
        goals.see(frozenset(fulfilled), time)
    assert not goals.reached
    goals.see(frozenset({UP}), 0.9)
    assert goals.reached == {UP}


def test_at_once() -> None:
    goals = Goals(0)
    goals.see(frozenset({DOWN}), 3)
    assert goals.reached == {DOWN}
    assert goals.missed(7) == "not within 7 steps; reached 'down'"
    assert Goals(0).missed(7) == "not within 7 steps"
