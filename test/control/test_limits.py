"""Every command obeys every limit, whatever is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.control.limits import Bounds, JointLimits, Limiter

DT = 1.0 / 30.0


def limits(lower: float, upper: float, velocity: float, acceleration: float, joints: int = 1) -> JointLimits:
    full = [np.full(joints, value) for value in (lower, upper, velocity, acceleration)]
    return JointLimits(*full)


def check_step(bounds: JointLimits, last: np.ndarray, before: np.ndarray, now: np.ndarray) -> None:
    """Position, velocity and acceleration of one command against the two before it."""
    velocity, velocity_before = (now - last) / DT, (last - before) / DT
    slack = 1e-9
    assert (now >= bounds.lower).all()
    assert (now <= bounds.upper).all()
    assert (np.abs(velocity) <= bounds.velocity * (1 + slack) + slack).all()
    change = np.abs(velocity - velocity_before)
    assert (change <= bounds.acceleration * DT * (1 + slack) + 1e-8).all()


bounds_strategy = st.builds(
    limits,
    lower=st.one_of(st.floats(-3.0, -0.1), st.just(-np.inf)),
    upper=st.one_of(st.floats(0.1, 3.0), st.just(np.inf)),
    velocity=st.floats(0.05, 20.0),
    acceleration=st.floats(0.1, 200.0),
)
targets_strategy = st.lists(
    st.one_of(st.none(), st.floats(-1e6, 1e6), st.floats(-3.0, 3.0)), min_size=1, max_size=80
)


@settings(max_examples=400, deadline=None)
@given(bounds_strategy, st.floats(-4.0, 4.0), targets_strategy)
def test_any_sequence_of_targets_and_brakes_obeys_every_limit(
    bounds: JointLimits, start: float, targets: list[float | None]
) -> None:
    limiter = Limiter(bounds, DT)
    before = last = np.clip(np.array([start]), bounds.lower, bounds.upper)
    limiter.start(np.array([start]))
    for target in [*targets, *[None] * 40]:
        now = limiter.brake() if target is None else limiter.step(np.array([target])).command
        check_step(bounds, last, before, now)
        before, last = last, now


@settings(max_examples=200, deadline=None)
@given(bounds_strategy, st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=40))
def test_a_stop_ends_at_rest_inside_the_limits(bounds: JointLimits, targets: list[float]) -> None:
    limiter = Limiter(bounds, DT)
    limiter.start(np.zeros(1))
    for target in targets:
        limiter.step(np.array([target]))
    steps = int(np.ceil(bounds.velocity[0] / (bounds.acceleration[0] * DT))) + 1
    for _ in range(steps):
        last = limiter.brake()
    assert limiter.at_rest
    assert bounds.lower[0] <= last[0] <= bounds.upper[0]
    assert limiter.brake() == pytest.approx(last, abs=0.0)


def test_a_motion_within_the_limits_passes_unchanged() -> None:
    bounds = limits(-2.0, 2.0, 2.0, 20.0)
    limiter = Limiter(bounds, DT)
    limiter.start(np.array([0.0]))
    for i in range(1, 200):
        target = np.array([1.0 - np.cos(0.9 * i * DT)])
        limited = limiter.step(target)
        assert limited.command == pytest.approx(target, abs=1e-12)
        assert not (limited.position or limited.velocity or limited.acceleration)


def test_a_far_target_is_reached_without_overshoot_and_kept() -> None:
    limiter = Limiter(limits(-2.0, 2.0, 1.0, 5.0), DT)
    limiter.start(np.array([-1.0]))
    commands = [limiter.step(np.array([1.0])).command[0] for _ in range(120)]
    assert max(commands) <= 1.0 + 1e-12
    assert commands[-1] == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.diff(commands) >= -1e-12)


def test_after_a_jump_of_a_moving_target_it_is_caught_and_followed_exactly() -> None:
    limiter = Limiter(limits(-10.0, 10.0, 2.0, 10.0), DT)
    limiter.start(np.array([0.0]))
    targets = [1.0 + 0.5 * i * DT for i in range(150)]
    commands = [limiter.step(np.array([target])).command[0] for target in targets]
    assert commands[-1] == pytest.approx(targets[-1], abs=1e-9)
    assert np.all(np.array(commands) <= np.array(targets) + 1e-9)


def test_a_target_beyond_the_limit_stops_at_the_limit() -> None:
    limiter = Limiter(limits(-1.0, 0.5, 10.0, 3.0), DT)
    limiter.start(np.array([-0.8]))
    results = [limiter.step(np.array([99.0])) for _ in range(100)]
    assert results[-1].command[0] == pytest.approx(0.5, abs=1e-12)
    assert all(result.position for result in results)
    assert any(result.acceleration for result in results)


def test_a_start_outside_the_limits_counts_as_the_limit() -> None:
    limiter = Limiter(limits(-1.0, 1.0, 1.0, 5.0), DT)
    limiter.start(np.array([1.05]))
    assert limiter.brake() == pytest.approx([1.0], abs=0.0)
    outwards = [limiter.step(np.array([2.0])).command[0] for _ in range(60)]
    assert outwards == [1.0] * 60


def test_joints_are_limited_independently() -> None:
    bounds = JointLimits(
        np.array([-1.0, -9.0]), np.array([1.0, 9.0]), np.array([0.3, 6.0]), np.array([90.0, 90.0])
    )
    limiter = Limiter(bounds, DT)
    limiter.start(np.zeros(2))
    limited = limiter.step(np.array([0.09, 0.09]))
    assert limited.command == pytest.approx([0.01, 0.09])
    assert limited.velocity and not limited.acceleration


def test_a_target_that_is_not_finite_is_an_error_and_changes_nothing() -> None:
    limiter = Limiter(limits(-1.0, 1.0, 1.0, 1.0), DT)
    limiter.start(np.array([0.2]))
    with pytest.raises(ValueError, match="not finite"):
        limiter.step(np.array([np.nan]))
    assert limiter.brake() == pytest.approx([0.2])


def test_a_command_before_the_start_is_an_error() -> None:
    limiter = Limiter(limits(-1.0, 1.0, 1.0, 1.0), DT)
    with pytest.raises(RuntimeError, match="measured positions"):
        limiter.step(np.zeros(1))
    limiter.start(np.zeros(1))
    limiter.forget()
    with pytest.raises(RuntimeError, match="measured positions"):
        limiter.brake()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((1.0, 1.0, 1.0, 1.0), "position limits of joint 0 are 1.0 to 1.0"),
        ((float("nan"), 1.0, 1.0, 1.0), "position limits of joint 0"),
        ((-1.0, 1.0, 0.0, 1.0), "velocity limit of joint 0 is 0.0"),
        ((-1.0, 1.0, 1.0, -2.0), "acceleration limit of joint 0 is -2.0"),
        ((-1.0, 1.0, 1.0, float("inf")), "acceleration limit of joint 0 is inf"),
    ],
)
def test_limits_that_make_no_sense_are_named(values: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        limits(*values)


def test_limits_of_different_lengths_are_an_error() -> None:
    with pytest.raises(ValueError, match="same number"):
        JointLimits(np.zeros(2), np.ones(2), np.ones(3), np.ones(2))


def test_errors_name_the_joint_where_its_name_is_known() -> None:
    names = ("pan", "lift")
    with pytest.raises(ValueError, match=r"position limits of joint 'lift' are 2\.0 to 1\.0"):
        JointLimits(np.array([-1.0, 2.0]), np.ones(2), np.ones(2), np.ones(2), names)
    with pytest.raises(ValueError, match="velocity limit of joint 'pan' is nan"):
        JointLimits(-np.ones(2), np.ones(2), np.array([np.nan, 1.0]), np.ones(2), names)
    bounds = JointLimits(-np.ones(2), np.ones(2), np.ones(2), np.ones(2), names)
    assert bounds.outside(np.array([1.05, -1.05]), 0.1) is None
    fault = bounds.outside(np.array([0.0, -1.2]), 0.1)
    assert fault == "joint 'lift' is at -1.2, outside its limits of -1 to 1 by more than 0.1"


def test_bounds_are_position_limits_alone() -> None:
    bounds = Bounds(limits(-1.0, 1.0, 0.1, 0.1))
    with pytest.raises(RuntimeError, match="no last command"):
        bounds.brake()
    assert bounds.step(np.array([0.9])).position is False
    limited = bounds.step(np.array([-7.0]))
    assert (limited.command, limited.position, limited.velocity) == ([-1.0], True, False)
    assert not bounds.at_rest
    assert bounds.brake() == bounds.command == [-1.0]
    assert bounds.at_rest
    bounds.start(np.array([3.0]))
    assert bounds.command == [1.0]
    bounds.forget()
    assert bounds.command is None
