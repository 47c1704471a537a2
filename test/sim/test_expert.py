"""The scripted expert solves every instruction, is the same every time, and recovers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vla_simd_ros.sim.arm import HOME, LOWER, UPPER
from vla_simd_ros.sim.expert import Expert
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.scene import CUBES, PADS
from vla_simd_ros.sim.tasks import CONTROL_RATE, INSTRUCTIONS, TaskScene

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

PERIOD = 1.0 / CONTROL_RATE
LIMIT = round(6.0 * CONTROL_RATE)
# Those of the chunk executor's default parameters.
VELOCITY_LIMIT, ACCELERATION_LIMIT = 2.0, 15.0


@pytest.fixture(scope="module")
def built() -> TaskScene:
    return TaskScene(width=16, height=16, renderer="opencv")


@pytest.fixture
def scene(built: TaskScene) -> TaskScene:
    built.reset(0)
    return built


def solve(
    scene: TaskScene, instruction: str, disturb: Callable[[int, np.ndarray], np.ndarray] | None = None
) -> np.ndarray:
    """Lets the expert work until it is done; its commands [n, 6]."""
    expert = Expert(scene, instruction)
    commands: list[np.ndarray] = []
    while not expert.done and len(commands) < LIMIT:
        commands.append(expert.command())
        scene.robot.set_command(commands[-1] if disturb is None else disturb(len(commands), commands[-1]))
        scene.robot.step(PERIOD)
    return np.array(commands)


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_solves(scene: TaskScene, instruction: str) -> None:
    scene.reset(INSTRUCTIONS.index(instruction))
    commands = solve(scene, instruction)
    assert scene.achieved() == {instruction}
    assert 3.0 < len(commands) * PERIOD < 6.0
    np.testing.assert_allclose(scene.robot.command, HOME, atol=0.04)


def test_commands_are_within_the_limits_of_a_default_executor(scene: TaskScene) -> None:
    start = scene.robot.command
    commands = np.vstack([start, start, solve(scene, INSTRUCTIONS[0])])
    assert (commands >= LOWER).all() and (commands <= UPPER).all()
    velocities = np.diff(commands, axis=0) / PERIOD
    assert np.abs(velocities).max() <= VELOCITY_LIMIT
    assert np.abs(np.diff(velocities, axis=0) / PERIOD).max() <= ACCELERATION_LIMIT


def test_is_the_same_every_time(scene: TaskScene) -> None:
    first = solve(scene, INSTRUCTIONS[3])
    scene.reset(0)
    np.testing.assert_array_equal(solve(scene, INSTRUCTIONS[3]), first)


def test_instructions_lead_apart_from_the_same_start(scene: TaskScene) -> None:
    ends = []
    for instruction in ("put the red cube on the left pad", "put the blue cube on the right pad"):
        scene.reset(0)
        solve(scene, instruction)
        ends.append(scene.achieved())
    assert ends == [{"put the red cube on the left pad"}, {"put the blue cube on the right pad"}]


def test_recovers_from_pushes_of_the_targets(scene: TaskScene) -> None:
    generator = np.random.default_rng(0)
    pushes = {step: generator.uniform(-0.12, 0.12, 6) for step in range(10, 90, 16)}

    def push(step: int, command: np.ndarray) -> np.ndarray:
        return command + pushes.get(step - step % 4, np.zeros(6))

    solve(scene, INSTRUCTIONS[2], push)
    assert INSTRUCTIONS[2] in scene.achieved()


def test_fetches_a_cube_that_was_taken_away(scene: TaskScene) -> None:
    def take_away(step: int, command: np.ndarray) -> np.ndarray:
        if step == 70:  # it is being carried
            world = scene.robot.snapshot()
            assert world.cubes[0, 2] > 0.04
            scene.reset(0)
            scene.robot.place(world.positions, scene.robot.snapshot().cubes)
        return command

    commands = solve(scene, INSTRUCTIONS[0], take_away)
    assert INSTRUCTIONS[0] in scene.achieved()
    assert len(commands) > 130


def test_gives_up_a_cube_that_stays_out_of_reach_and_says_where_it_is(scene: TaskScene) -> None:
    cubes = scene.robot.snapshot().cubes
    cubes[0, :2] = 0.45, 0.05
    scene.robot.place(scene.robot.snapshot().positions, cubes)
    expert = Expert(scene, INSTRUCTIONS[0])
    steps = 0
    while not expert.given_up:
        scene.robot.set_command(expert.command())
        scene.robot.step(PERIOD)
        steps += 1
        assert steps <= 40, "it waits for ever"
    assert steps == 30
    assert expert.given_up == "the red cube is out of reach at (0.450, 0.050) m" and not expert.done


def test_waits_for_a_cube_that_comes_back(scene: TaskScene) -> None:
    inside = scene.robot.snapshot().cubes
    outside = inside.copy()
    outside[0, :2] = 0.45, 0.05
    scene.robot.place(scene.robot.snapshot().positions, outside)

    def bring_back(step: int, command: np.ndarray) -> np.ndarray:
        if step == 25:
            scene.robot.place(scene.robot.snapshot().positions, inside)
        return command

    solve(scene, INSTRUCTIONS[0], bring_back)
    assert INSTRUCTIONS[0] in scene.achieved()


def test_goes_on_with_a_cube_that_is_in_the_jaws(scene: TaskScene) -> None:
    expert = Expert(scene, INSTRUCTIONS[0])
    while scene.robot.snapshot().cubes[0, 2] < 0.04:
        scene.robot.set_command(expert.command())
        scene.robot.step(PERIOD)
    heights = []
    expert = Expert(scene, INSTRUCTIONS[1])
    while not expert.done and len(heights) < LIMIT:
        scene.robot.set_command(expert.command())
        scene.robot.step(PERIOD)
        heights.append(scene.robot.snapshot().cubes[0, 2])
    assert scene.achieved() == {INSTRUCTIONS[1]}
    assert min(heights[:10]) > 0.03, "it was not put down in between"


def test_has_nothing_to_do_but_go_home_when_the_goal_is_reached(scene: TaskScene) -> None:
    cubes = scene.robot.snapshot().cubes
    cubes[CUBES.index(CUBES[0]), :2] = PADS[0].center
    scene.robot.place(HOME + 0.1, cubes)
    commands = solve(scene, INSTRUCTIONS[0])
    assert len(commands) < 30
    assert scene.achieved() == {INSTRUCTIONS[0]}


def test_out_of_reach_it_waits(scene: TaskScene) -> None:
    cubes = scene.robot.snapshot().cubes
    cubes[0, :2] = (0.5, 0.3)
    scene.robot.place(HOME, cubes)
    commands = solve(scene, INSTRUCTIONS[0])
    assert len(commands) == LIMIT
    np.testing.assert_allclose(commands[-1][:5], HOME[:5], atol=1e-6)


@pytest.mark.parametrize("angle", [0.4, 2.5, 4.6])
def test_forgives_being_wrong_by_a_centimetre(scene: TaskScene, angle: float) -> None:
    error = (0.010 * np.cos(angle), 0.010 * np.sin(angle), 0.004)
    expert = Expert(scene, INSTRUCTIONS[1], error=error)
    heights = []
    while not expert.done and len(heights) < LIMIT:
        scene.robot.set_command(expert.command())
        scene.robot.step(PERIOD)
        heights.append(scene.robot.snapshot().cubes[0, 2])
    assert scene.achieved() == {INSTRUCTIONS[1]}
    lifted = np.array(heights) > 0.03
    assert np.diff(lifted.astype(int)).tolist().count(1) == 1, "at the first attempt"


def test_misses_when_it_is_wrong_by_more_than_the_jaws_forgive(scene: TaskScene) -> None:
    expert = Expert(scene, INSTRUCTIONS[1], error=(0.0, 0.05, 0.0))
    for _ in range(60):
        scene.robot.set_command(expert.command())
        scene.robot.step(PERIOD)
    assert scene.robot.snapshot().cubes[0, 2] < 0.02


def test_unknown_instruction(scene: TaskScene) -> None:
    with pytest.raises(SimulationError, match="instruction: got 'dance'"):
        Expert(scene, "dance")
