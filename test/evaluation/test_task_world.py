"""The simulated arm as a world: episodes repeat, goals are judged, and the expert succeeds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

from vla_simd_ros.evaluation.episodes import plan, shuffled
from vla_simd_ros.evaluation.request import task_limits
from vla_simd_ros.evaluation.rollout import run_episode
from vla_simd_ros.evaluation.task_world import ExpertPilot, TaskWorld
from vla_simd_ros.evaluation.world import Episode, Limits
from vla_simd_ros.sim.tasks import INSTRUCTIONS


@pytest.fixture(scope="module")
def world() -> Iterator[TaskWorld]:
    made = TaskWorld(64, 48, ("front",), renderer="opencv")
    yield made
    made.close()


def test_the_same_episode_starts_the_same(world: TaskWorld) -> None:
    first, second = (Episode(0, seed, INSTRUCTIONS[0], INSTRUCTIONS[1]) for seed in (40, 41))
    states = []
    for episode in (first, second, first):
        world.begin(episode)
        states.append({name: list(values) for name, values in world.state().items()})
    assert states[0] == states[2] != states[1]
    assert len(states[0]["joints"]) == 6


def test_what_the_policy_sees(world: TaskWorld) -> None:
    world.begin(Episode(0, 1, INSTRUCTIONS[0], INSTRUCTIONS[0]))
    seen = world.observe()
    assert list(seen.images) == ["front"] and seen.images["front"].shape == (48, 64, 3)
    assert seen.state is not None
    np.testing.assert_array_equal(seen.state, world.positions)
    np.testing.assert_array_equal(world.picture(), seen.images["front"])


def test_without_a_command_the_arm_stays(world: TaskWorld) -> None:
    world.begin(Episode(0, 1, INSTRUCTIONS[0], INSTRUCTIONS[0]))
    before = world.positions
    for _ in range(5):
        world.act(None)
    assert np.abs(world.positions - before).max() < 0.02
    world.act(before + 0.2)
    assert np.abs(world.positions - before).max() > 0.02


def test_the_expert_does_what_it_is_told_within_the_limits(world: TaskWorld) -> None:
    limits = task_limits(world.period_ns)
    # Of other seeds than the evaluation's: what is tested here is the evaluation.
    trials = shuffled(plan(2, INSTRUCTIONS, first_seed=300), INSTRUCTIONS)
    for episode in trials:
        found = run_episode(world, ExpertPilot(), episode, limits)
        assert found.success, found.failure
        assert found.reached == {episode.instruction}
        commands = np.array(found.commands)
        assert np.abs(np.diff(commands, axis=0)).max() <= 2.0 * world.period_ns * 1e-9 + 1e-9


def test_an_expert_that_gives_up_ends_the_episode_and_says_why(
    world: TaskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange = world.scene.arrange

    def far_away(seed: int) -> None:
        arrange(seed)
        snapshot = world.scene.robot.snapshot()
        snapshot.cubes[:, :2] = [[0.45, 0.2], [0.45, 0.0], [0.45, -0.2]]
        world.scene.robot.place(snapshot.positions, snapshot.cubes)

    monkeypatch.setattr(world.scene, "arrange", far_away)
    found = run_episode(world, ExpertPilot(), plan(1, INSTRUCTIONS)[0], task_limits(world.period_ns))
    assert not found.success and found.steps < 60
    assert found.failure == "the red cube is out of reach at (0.450, 0.200) m"


def test_an_expert_without_time_fails(world: TaskWorld) -> None:
    episode = plan(1, INSTRUCTIONS)[0]
    found = run_episode(world, ExpertPilot(), episode, Limits(20))
    assert not found.success
    assert set(found.state) == {"joints", "red_cube", "green_cube", "blue_cube"}
