"""Starts are random, sound and repeatable; a goal is reached when its cube alone lies still on its pad."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vla_simd_ros.sim.arm import HOME
from vla_simd_ros.sim.inverse_kinematics import point_down_at
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.scene import CUBES, PADS
from vla_simd_ros.sim.tasks import GOALS, INSTRUCTIONS, TaskScene, goal_of

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

LEFT, RIGHT = (pad.center for pad in PADS)
RED_LEFT = "put the red cube on the left pad"


@pytest.fixture(scope="module")
def built() -> TaskScene:
    return TaskScene(width=16, height=16, renderer="opencv")


@pytest.fixture
def scene(built: TaskScene) -> TaskScene:
    built.reset(0)
    return built


def place(scene: TaskScene, **centers: tuple[float, float]) -> None:
    """Puts some cubes at rest at other places."""
    cubes = scene.robot.snapshot().cubes
    for name, center in centers.items():
        index = [cube.name for cube in CUBES].index(f"{name}_cube")
        cubes[index, :3] = (*center, 0.015)
    scene.robot.place(HOME, cubes)


def test_every_cube_goes_with_every_pad() -> None:
    assert len(INSTRUCTIONS) == len(set(INSTRUCTIONS)) == 6
    for cube, pad in itertools.product(("red", "green", "blue"), ("left", "right")):
        goal = goal_of(f"put the {cube} cube on the {pad} pad")
        assert (goal.cube.name, goal.pad.name) == (f"{cube}_cube", f"{pad}_pad")


def test_pads_do_not_touch() -> None:
    (first, second) = PADS
    assert abs(first.center[1] - second.center[1]) > first.half_size + second.half_size + 0.05
    assert first.center[1] > 0 > second.center[1], "left is where the arm's y axis points"


def test_unknown_instruction() -> None:
    with pytest.raises(
        SimulationError, match="instruction: got 'dance', expected one of put the red cube on"
    ):
        goal_of("dance")


def test_same_seed_same_world(scene: TaskScene) -> None:
    first = scene.robot.snapshot()
    scene.robot.set_command(HOME + 0.3)
    scene.robot.step(0.5)
    scene.reset(0)
    again = scene.robot.snapshot()
    np.testing.assert_array_equal(again.cubes, first.cubes)
    np.testing.assert_array_equal(again.positions, first.positions)
    assert again.time == 0.0
    scene.reset(1)
    assert (scene.robot.snapshot().cubes[:, :2] != first.cubes[:, :2]).all()
    assert (scene.robot.joint_positions != first.positions).all()


def test_arranging_lets_time_go_on(scene: TaskScene) -> None:
    scene.reset(3)
    wanted = scene.robot.snapshot()
    scene.reset(0)
    scene.robot.set_command(HOME + 0.3)
    scene.robot.step(0.5)
    scene.arrange(3)
    arranged = scene.robot.snapshot()
    assert arranged.time == pytest.approx(0.5)
    np.testing.assert_array_equal(arranged.cubes, wanted.cubes)
    np.testing.assert_array_equal(arranged.velocities, np.zeros(6))
    np.testing.assert_array_equal(scene.robot.command, wanted.positions)


def test_starts_are_apart_off_the_pads_reachable_and_at_rest(scene: TaskScene) -> None:
    for seed in range(60):
        scene.reset(seed)
        start = scene.robot.snapshot().cubes
        places = start[:, :2]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)) >= 0.07
        for pad in PADS:
            # Farther from the pad than half a cube's diagonal.
            outside = np.maximum(np.abs(places - pad.center) - pad.half_size, 0.0)
            assert (np.linalg.norm(outside, axis=1) > 0.0213).all()
        for x, y in places:
            point_down_at((x, y, 0.015), (0.088, 0.003), 0.3)
            point_down_at((x, y, 0.068), (0.088, 0.018), 0.85)
        assert scene.achieved() == frozenset()
    scene.robot.step(1.0)
    np.testing.assert_allclose(scene.robot.snapshot().cubes, start, atol=1e-3)


def test_starts_cover_their_area(scene: TaskScene) -> None:
    places = []
    for seed in range(60):
        scene.reset(seed)
        places.append(scene.robot.snapshot().cubes[:, :2])
    spread = np.ptp(np.array(places), axis=0)
    assert (spread > (0.06, 0.18)).all(), "each cube can be anywhere"


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_a_goal_is_reached_and_no_other(scene: TaskScene, instruction: str) -> None:
    goal = GOALS[instruction]
    color = goal.cube.name.removesuffix("_cube")
    place(scene, **{color: goal.pad.center})
    scene.robot.step(0.2)
    assert scene.achieved() == {instruction}


def test_a_goal_is_not_reached_beside_the_pad_or_with_another_cube_on_it(scene: TaskScene) -> None:
    inside = PADS[0].half_size - 0.001
    place(scene, red=(LEFT[0] + inside, LEFT[1] - inside))
    assert RED_LEFT in scene.achieved()
    place(scene, red=(LEFT[0] + inside + 0.002, LEFT[1]))
    assert scene.achieved() == frozenset()
    place(scene, red=(LEFT[0] - 0.02, LEFT[1]), green=(LEFT[0] + 0.02, LEFT[1]))
    assert scene.achieved() == frozenset()
    place(scene, red=LEFT, green=RIGHT)
    assert scene.achieved() == {RED_LEFT, "put the green cube on the right pad"}


def test_a_goal_is_not_reached_in_the_air(scene: TaskScene) -> None:
    cubes = scene.robot.snapshot().cubes
    cubes[0, :3] = (*LEFT, 0.06)
    scene.robot.place(HOME, cubes)
    assert scene.achieved() == frozenset()
    scene.robot.step(0.1)  # falling, and then near the table but fast
    assert scene.achieved() == frozenset()
    scene.robot.step(1.0)
    assert scene.achieved() == {RED_LEFT}


def test_a_goal_is_not_reached_while_the_cube_moves(scene: TaskScene) -> None:
    cubes = scene.robot.snapshot().cubes
    cubes[0, :3] = (*LEFT, 0.018)
    scene.robot.place(HOME, cubes)
    scene.robot.step(0.012)  # it falls, and is as good as on the table
    world = scene.robot.snapshot()
    assert world.cubes[0, 2] < 0.018
    assert world.cube_velocities[0, 2] < -0.05
    assert scene.achieved() == frozenset()
    scene.robot.step(0.5)
    assert scene.achieved() == {RED_LEFT}
