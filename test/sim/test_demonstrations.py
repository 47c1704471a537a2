"""Demonstrations: what is recorded is what the expert wants; they start in many ways, and end solved."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.sim import demonstrations
from vla_simd_ros.sim.arm import HOME, LOWER, UPPER
from vla_simd_ros.sim.demonstrations import Disturbances, demonstrate
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.robot import Frame
from vla_simd_ros.sim.scene import PADS
from vla_simd_ros.sim.tasks import INSTRUCTIONS, TaskScene

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

HEIGHT, WIDTH = 8, 12
STARTS = ("at_home", "elsewhere", "midway", "later")
CALM = Disturbances(push=0.0, missed=0.0)


@pytest.fixture(scope="module")
def scene() -> TaskScene:
    return TaskScene(width=WIDTH, height=HEIGHT, renderer="opencv")


@pytest.fixture
def blind(scene: TaskScene, monkeypatch: pytest.MonkeyPatch) -> TaskScene:
    """Draws nothing, which takes most of the time."""
    nothing = Frame(np.zeros((HEIGHT, WIDTH, 3), np.uint8), 0.0)
    monkeypatch.setattr(scene.robot, "render", lambda camera: nothing)
    return scene


def choose(monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    monkeypatch.setattr(demonstrations, "_SHARES", tuple(float(start == each) for each in STARTS))
    assert len(STARTS) == len(demonstrations._STARTS)


def test_steps(scene: TaskScene, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "at_home")
    steps = demonstrate(scene, INSTRUCTIONS[0], np.random.default_rng(0), CALM)
    assert steps is not None and 90 < len(steps) < 200
    assert scene.achieved() == {INSTRUCTIONS[0]}
    for step in steps:
        assert {name: picture.shape for name, picture in step.pictures.items()} == {
            "front": (HEIGHT, WIDTH, 3),
            "wrist": (HEIGHT, WIDTH, 3),
        }
        assert step.state.shape == step.action.shape == (6,)
        assert ((step.action >= LOWER) & (step.action <= UPPER)).all()
    assert np.abs(steps[0].state - HOME).max() < 0.11
    # The action is where the arm goes, a little ahead of where it is.
    states = np.array([step.state for step in steps])
    actions = np.array([step.action for step in steps])
    assert np.abs(actions[:-2] - states[2:])[:, :5].mean() < 0.02
    for step in steps[-5:]:
        np.testing.assert_allclose(step.state[:5], HOME[:5], atol=0.06)


def test_the_same_generator_gives_the_same_demonstration(blind: TaskScene) -> None:
    first, second = (
        demonstrate(blind, INSTRUCTIONS[1], np.random.default_rng(3), Disturbances(0.08, 0.0))
        for _ in range(2)
    )
    assert first is not None and second is not None
    np.testing.assert_array_equal([step.action for step in first], [step.action for step in second])


def test_pushes_move_the_arm_and_not_what_is_recorded_of_that_moment(
    blind: TaskScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "at_home")
    calm = demonstrate(blind, INSTRUCTIONS[2], np.random.default_rng(5), CALM)
    offsets = np.zeros((240, 6))
    offsets[30:36, 0] = 0.15
    monkeypatch.setattr(demonstrations, "_pushes", lambda generator, amplitude: offsets)
    pushed = demonstrate(blind, INSTRUCTIONS[2], np.random.default_rng(5), CALM)
    assert calm is not None and pushed is not None
    for number in range(31):
        np.testing.assert_array_equal(pushed[number].action, calm[number].action)
    moved = pushed[36].state[0] - calm[36].state[0]
    assert moved > 0.05
    # Afterwards the expert leads back.
    assert pushed[40].action[0] < pushed[36].state[0]
    assert blind.achieved() == {INSTRUCTIONS[2]}


@pytest.mark.parametrize("start", [*STARTS, "missed"])
def test_starts(blind: TaskScene, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    missed = start == "missed"
    if not missed:
        choose(monkeypatch, start)
    disturbances = Disturbances(push=0.0, missed=float(missed))
    first: list[np.ndarray] = []
    occupied = 0
    for seed in range(3):
        steps = demonstrate(blind, INSTRUCTIONS[5], np.random.default_rng(seed), disturbances)
        if steps is not None:
            first.append(steps[0].state)
            assert INSTRUCTIONS[5] in blind.achieved()
            cubes = blind.robot.snapshot().cubes
            occupied += any(PADS[0].holds(*cube[:2]) for cube in cubes)
    assert first
    away = max(np.abs(state - HOME)[:5].max() for state in first)
    assert (away > 0.3) == (start in ("elsewhere", "midway", "missed"))
    if start == "later":
        assert occupied == len(first)


def test_a_failure_is_none(blind: TaskScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstrations, "TIME_LIMIT", 1.0)
    choose(monkeypatch, "at_home")
    assert demonstrate(blind, INSTRUCTIONS[0], np.random.default_rng(0), CALM) is None


def test_pushes_are_bounded_and_end() -> None:
    offsets = demonstrations._pushes(np.random.default_rng(0), 0.1)
    assert offsets.shape == (240, 6)
    assert 0.03 < np.abs(offsets).max() <= 0.1
    assert np.abs(offsets[:, 5]).max() <= 0.03
    assert 0.05 < (np.abs(offsets).max(axis=1) > 0).mean() < 0.6
    assert not demonstrations._pushes(np.random.default_rng(0), 0.0).any()


@pytest.mark.parametrize(
    ("push", "missed", "message"),
    [(-0.1, 0.0, "push: got -0.1 rad"), (2.0, 0.0, "expected 0 to 1"), (0.0, 1.5, "missed grasps: got 1.5")],
)
def test_impossible_disturbances(push: float, missed: float, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        Disturbances(push, missed)
