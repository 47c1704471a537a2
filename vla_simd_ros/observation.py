"""What a robot sees and feels, and its layout as inputs of a policy's query program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.executors.base import InputError
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.base import CameraSpec, PolicySpec

_IMAGE_RANK = 3


@dataclass(frozen=True, eq=False)
class Observation:
    """What the robot sees and feels at one moment.

    ``images`` are RGB, uint8 [H, W, 3], by camera name; ``state`` and ``env_state`` float vectors in robot
    units, None (or empty) where the policy takes none. For a policy of n > 1 observation steps everything
    has a first axis of n, oldest first, and ``valid`` bool [n] tells which of them there were (None: all);
    a copy of a later one stands in for one that was not.
    """

    images: Mapping[str, npt.NDArray[np.uint8]]
    state: npt.NDArray[np.floating[Any]] | None = None
    env_state: npt.NDArray[np.floating[Any]] | None = None
    valid: npt.NDArray[np.bool_] | None = None


def observation_inputs(spec: PolicySpec, observation: Observation) -> dict[str, Array]:
    """The runtime inputs of the query program; raises :class:`InputError` for what does not fit."""
    inputs = _images(spec, observation)
    vectors = (
        ("state", observation.state, spec.state_dim),
        ("env_state", observation.env_state, spec.env_state_dim),
    )
    for name, vector, width in vectors:
        expected = [width] if spec.observation_steps == 1 else [spec.observation_steps, width]
        if vector is None and width:
            raise InputError(f"{name} is missing, the checkpoint expects {expected}")
        if width or (vector is not None and np.asarray(vector).size):
            inputs[name] = _vectors(name, np.asarray(vector), expected)
    valid = _valid(spec, observation)
    if spec.takes_observation_mask:
        inputs["observation_mask"] = valid.astype(np.float32)[:, None]
    return inputs


def blank_observation(spec: PolicySpec) -> Observation:
    """Black images and zeros, of the sizes that a policy takes."""
    steps = () if spec.observation_steps == 1 else (spec.observation_steps,)
    cameras = {
        name: np.zeros((*steps, camera.height, camera.width, camera.channels), np.uint8)
        for name, camera in spec.cameras.items()
    }
    state, env_state = (np.zeros((*steps, n), np.float32) for n in (spec.state_dim, spec.env_state_dim))
    return Observation(cameras, state, env_state)


def _images(spec: PolicySpec, observation: Observation) -> dict[str, Array]:
    expected = ", ".join(spec.cameras) or "none"
    for name in observation.images:
        if name not in spec.cameras:
            raise InputError(f"camera '{name}' is unknown, the checkpoint expects: {expected}")
    inputs: dict[str, Array] = {}
    for name, camera in spec.cameras.items():
        if name not in observation.images:
            raise InputError(f"camera '{name}' is missing, the checkpoint expects: {expected}")
        array = np.asarray(observation.images[name])
        if spec.observation_steps == 1:
            inputs[f"image.{name}"] = _image(name, array, camera)
            continue
        if array.ndim != _IMAGE_RANK + 1 or len(array) != spec.observation_steps:
            raise InputError(
                f"camera '{name}': got an array of shape {list(array.shape)}, the checkpoint expects "
                f"{spec.observation_steps} images, oldest first"
            )
        for step, image in enumerate(array):
            inputs[f"image.{name}.{step}"] = _image(name, image, camera)
    return inputs


def _image(name: str, array: Array, camera: CameraSpec) -> Array:
    expected = f"the checkpoint expects {camera.width}x{camera.height} uint8 with {camera.channels} channels"
    if array.ndim != _IMAGE_RANK:
        raise InputError(f"camera '{name}': got an array of shape {list(array.shape)}, {expected}")
    height, width, channels = array.shape
    if array.dtype != np.uint8 or (height, width, channels) != (camera.height, camera.width, camera.channels):
        got = f"{width}x{height} {array.dtype} with {channels} channels"
        raise InputError(f"camera '{name}': got {got}, {expected}")
    return np.ascontiguousarray(array)


def _vectors(name: str, given: Array, expected: list[int]) -> Array:
    """A vector for each observation step, as rows."""
    if list(given.shape) != expected:
        raise InputError(f"{name}: got shape {list(given.shape)}, the checkpoint expects {expected}")
    return finite_rows(name, np.atleast_2d(given))


def finite_rows(name: str, given: Array) -> Array:
    """``given`` [n, width] as float32. Raises InputError for other types and for values not finite."""
    if given.dtype.kind != "f":
        raise InputError(f"{name}: got {given.dtype}, expected floating-point values")
    with np.errstate(over="ignore"):
        values = given.astype(np.float32)
    for row, index in np.argwhere(~np.isfinite(values)):
        where = f"value {index}" if len(given) == 1 else f"value {index} of row {row}"
        raise InputError(f"{name}: {where} is {given[row, index]}, expected a finite number")
    return np.ascontiguousarray(values)


def _valid(spec: PolicySpec, observation: Observation) -> npt.NDArray[np.bool_]:
    steps = spec.observation_steps
    if observation.valid is None:
        return np.ones(steps, np.bool_)
    valid = np.asarray(observation.valid)
    if valid.shape != (steps,) or valid.dtype != np.bool_:
        raise InputError(
            f"valid: got {valid.dtype} {list(valid.shape)}, the checkpoint expects bool [{steps}]"
        )
    if not valid[-1]:
        raise InputError("valid: the newest observation is not valid, expected at least that one to be")
    return valid
