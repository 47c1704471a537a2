"""From the values of a LeRobot robot to what a policy takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.observation_history import padded
from vla_simd_ros.inference import Observation
from vla_simd_ros.pictures import resize
from vla_simd_ros.policies.base import CameraSpec, PolicySpec
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.requests import PolicyRequest, TimedObservation

_TASK = "task"
_LARGEST = float(np.finfo(np.float32).max)


def check_request(request: PolicyRequest, spec: PolicySpec) -> None:
    """Raises :class:`WireError` unless the robot has what the policy takes."""
    if request.policy_type != spec.type:
        raise WireError(f"the client wants a policy of type '{request.policy_type}', served is '{spec.type}'")
    if spec.state_dim and len(request.state_names) != spec.state_dim:
        names = ", ".join(request.state_names) or "none"
        raise WireError(f"the robot's state has {len(request.state_names)} values ({names}), the policy "
                        f"expects {spec.state_dim}")  # fmt: skip
    if spec.env_state_dim:
        raise WireError("the policy takes an environment state, which this protocol does not carry")
    given, expected = sorted(request.cameras.values()), sorted(_features(spec))
    if given != expected:
        raise WireError(f"the robot's cameras are {', '.join(given) or 'none'}, the policy expects "
                        f"{', '.join(expected) or 'none'}")  # fmt: skip


def policy_observation(
    timed: TimedObservation,
    request: PolicyRequest,
    spec: PolicySpec,
    past: Sequence[TimedObservation | None] = (),
) -> Observation:
    """The policy's view of an observation; images of another size are resized.

    ``past`` are those of the observation steps before it, oldest first, None where there was none.
    Raises :class:`WireError` for a value that is missing or of another kind.
    """
    present = _observation(timed, request, spec)
    if spec.observation_steps == 1:
        return present
    before = [None if each is None else _observation(each, request, spec) for each in past]
    steps, valid = padded(before, present)
    return Observation(
        {name: np.stack([step.images[name] for step in steps]) for name in present.images},
        np.stack([step.state for step in steps if step.state is not None]) if spec.state_dim else None,
        valid=np.array(valid, np.bool_),
    )


def _observation(timed: TimedObservation, request: PolicyRequest, spec: PolicySpec) -> Observation:
    names = _features(spec)
    images = {
        names[feature]: _image(robot_name, timed.values, spec.cameras[names[feature]])
        for robot_name, feature in request.cameras.items()
    }
    state = state_vector(timed, request) if spec.state_dim else None
    return Observation(images, state)


def _features(spec: PolicySpec) -> dict[str, str]:
    """The policy's cameras by their own names: the client's renaming stands in for the checkpoint's."""
    return {spec.camera_features.get(name, name): name for name in spec.cameras}


def state_vector(timed: TimedObservation, request: PolicyRequest) -> npt.NDArray[np.float32]:
    """The robot's values in the order of the policy's state; float32 [S]. Raises :class:`WireError`."""
    values = []
    for name in request.state_names:
        value: Any = timed.values.get(name)
        number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not number or not abs(float(value)) <= _LARGEST:
            shown = "missing" if name not in timed.values else f"{value!r}"
            raise WireError(f"an observation: '{name}' is {shown}, expected a finite number")
        values.append(value)
    return np.array(values, np.float32)


def task_of(timed: TimedObservation) -> str:
    """The instruction that came with an observation. Raises :class:`WireError` where there is none."""
    task = timed.values.get(_TASK)
    if not isinstance(task, str) or not task.strip():
        raise WireError(f"an observation: the task is {task!r}, the policy needs an instruction")
    return task


def _image(name: str, values: Any, camera: CameraSpec) -> npt.NDArray[np.uint8]:
    image = values.get(name)
    if image is None:
        raise WireError(f"an observation: camera '{name}' is missing")
    fits = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3
    if not fits or image.shape[2] != camera.channels or 0 in image.shape:
        got = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise WireError(f"an observation: camera '{name}' is {got}, expected uint8 [H, W, {camera.channels}]")
    return np.ascontiguousarray(resize(image, camera.height, camera.width))
