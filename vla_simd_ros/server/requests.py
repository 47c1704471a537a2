"""What LeRobot's client asks for, checked: the policy's configuration and timed observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.unpickling import read_observation, read_policy_config

_LATEST_S = 1e12
"""The largest time of a client's clock that is believed, seconds."""

_CONFIGURATION = "the policy's configuration"


@dataclass(frozen=True)
class PolicyRequest:
    """Which policy a client wants, and how its robot names what the policy sees.

    ``state_names`` are the robot's values in the order of the state vector; ``cameras`` maps the robot's
    camera names to the policy's.
    """

    policy_type: str
    checkpoint: str
    actions_per_chunk: int
    state_names: tuple[str, ...]
    cameras: Mapping[str, str]
    device: str


@dataclass(frozen=True, eq=False)
class TimedObservation:
    """What the robot saw at ``timestamp`` (seconds, the client's clock) and step ``timestep``.

    ``values`` hold numbers by the robot's names, images (uint8 [H, W, 3]) by camera, and the task. An
    observation that ``must_go`` is never skipped.
    """

    timestamp: float
    timestep: int
    values: Mapping[str, Any]
    must_go: bool


def policy_request(data: bytes) -> PolicyRequest:
    """Read a pickled RemotePolicyConfig. Raises :class:`WireError`."""
    fields = read_policy_config(data)
    rename = _mapping(fields.get("rename_map", {}), "rename_map")
    state_names, cameras = _features(_mapping(fields.get("lerobot_features"), "lerobot_features"), rename)
    rows = fields.get("actions_per_chunk")
    if type(rows) is not int or rows < 1:
        raise WireError(f"{_CONFIGURATION}: actions_per_chunk is {rows!r}, expected a number of at least 1")
    return PolicyRequest(
        policy_type=_text(fields, "policy_type"),
        checkpoint=_text(fields, "pretrained_name_or_path"),
        actions_per_chunk=rows,
        state_names=state_names,
        cameras=cameras,
        device=_text(fields, "device") if "device" in fields else "cpu",
    )


def timed_observation(data: bytes) -> TimedObservation:
    """Read a pickled TimedObservation. Raises :class:`WireError`."""
    fields = read_observation(data)
    timestamp, timestep = fields.get("timestamp"), fields.get("timestep")
    if not isinstance(timestamp, float) or not abs(timestamp) <= _LATEST_S:
        raise WireError(f"an observation: the timestamp is {timestamp!r}, expected seconds")
    if type(timestep) is not int or timestep < 0:
        raise WireError(f"an observation: the timestep is {timestep!r}, expected a number of at least 0")
    values = fields.get("observation")
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise WireError("an observation: what was observed is not a set of named values")
    return TimedObservation(timestamp, timestep, values, fields.get("must_go", False) is True)


def _features(
    features: Mapping[str, Any], rename: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Names of the state's values, and camera names: the robot's to the policy's."""
    state_names: tuple[str, ...] = ()
    cameras: dict[str, str] = {}
    for key, feature in features.items():
        kind = _mapping(feature, f"lerobot_features['{key}']").get("dtype")
        if key == "observation.state":
            names = feature.get("names")
            if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
                raise WireError(f"{_CONFIGURATION}: '{key}' has names {names!r}, expected a list of names")
            state_names = tuple(names)
        elif key.startswith("observation.images.") and kind in ("image", "video"):
            robot = key.removeprefix("observation.images.")
            cameras[robot] = str(rename.get(key, key)).removeprefix("observation.images.")
        elif key.startswith("observation."):
            raise WireError(f"{_CONFIGURATION}: feature '{key}' of dtype {kind!r} is not supported")
    return state_names, cameras


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise WireError(f"{_CONFIGURATION}: {name} is {value!r}, expected a set of named values")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise WireError(f"{_CONFIGURATION}: {name} is {value!r}, expected a text")
    return value
