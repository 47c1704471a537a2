"""One rule: when it moves, and what it is charged with."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.hybrid.cut_rule import CutRule


def test_it_goes_where_the_forecast_is_best_if_that_saves_the_margin() -> None:
    rule = CutRule(1, margin=0.1)
    rule.choose(np.array([0.95, 1.0, 0.91]))
    assert rule.cut == 1
    rule.choose(np.array([0.95, 1.0, 0.89]))
    assert rule.cut == 2


def test_of_equal_cuts_it_keeps_its_own() -> None:
    rule = CutRule(1, margin=0.0)
    rule.choose(np.array([1.0, 1.0, 1.0]))
    assert rule.cut == 1


@pytest.mark.parametrize(("forecast", "cut"), [((1.0, 1.0, 0.99), 2), ((0.99, 1.0, 1.0), 1)])
def test_an_eager_move_towards_more_blocks_needs_no_margin(forecast: tuple[float, ...], cut: int) -> None:
    rule = CutRule(1, margin=0.1)
    rule.choose(np.array(forecast), eager=True)
    assert rule.cut == cut


def test_it_is_charged_with_what_it_cost_more_than_the_best_cut() -> None:
    rule = CutRule(0, margin=0.0, charged=1.0)
    rule.charge(np.array([3.0, 2.0]), delay=0, kept=0.5)
    assert rule.charged == pytest.approx(0.5 + 0.5)


@pytest.mark.parametrize(("delay", "expected"), [(0, 0.0), (1, 2.0), (2, 1.0), (3, 1.0), (99, 1.0)])
def test_the_cut_that_is_charged_is_the_one_that_the_frame_began_with(delay: int, expected: float) -> None:
    """Chosen in turn: 1, the first one; 2, 0."""
    rule = CutRule(1, margin=0.0)
    for best in (2, 0):
        rule.choose(np.where(np.arange(3) == best, 1.0, 2.0))
    rule.charge(np.array([1.0, 2.0, 3.0]), delay, kept=1.0)
    assert rule.charged == expected


def test_a_choice_that_is_revised_starts_from_the_cut_before_it() -> None:
    rule = CutRule(1, margin=0.1)
    rule.choose(np.array([0.8, 1.0, 1.0]))
    assert rule.cut == 0
    rule.revise(np.array([0.95, 1.0, 1.0]))
    assert rule.cut == 1
    rule.revise(np.array([1.0, 1.0, 0.99]), eager=True)
    assert rule.cut == 2
    rule.choose(np.array([1.0, 0.95, 1.0]))
    assert rule.cut == 0, "no frame has begun with what was revised: it is as if it had not been"


@pytest.mark.parametrize(("delay", "expected", "then"), [(0, 1.0, 0), (1, 0.0, 2)])
def test_a_revised_choice_is_charged_where_a_frame_began_with_it(
    delay: int, expected: float, then: int
) -> None:
    """The first cut is 1, the choice 0, revised to 2."""
    rule = CutRule(1, margin=0.0)
    rule.choose(np.array([1.0, 2.0, 2.0]))
    rule.revise(np.array([2.0, 2.0, 1.0]))
    rule.charge(np.array([2.0, 1.0, 3.0]), delay, kept=1.0)
    assert (rule.charged, rule.cut) == (expected, then)
