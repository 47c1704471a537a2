"""What a client asks for, well and badly."""

from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.requests import policy_request, timed_observation

STATE = {"dtype": "float32", "shape": (2,), "names": ["pan.pos", "lift.pos"]}
CAMERA = {"dtype": "video", "shape": (8, 12, 3), "names": None}


def test_a_request_names_the_robots_parts(client: Any) -> None:
    request = policy_request(client.config())
    assert request.state_names == ("pan.pos", "lift.pos")
    assert request.cameras == {"front": "front"}
    assert (request.policy_type, request.checkpoint, request.actions_per_chunk, request.device) == (
        "act",
        "someone/some-policy",
        3,
        "cuda",
    )


def test_cameras_are_renamed_as_the_client_says(client: Any) -> None:
    features = {"observation.state": STATE, "observation.images.cam0": CAMERA}
    rename = {"observation.images.cam0": "observation.images.wrist"}
    request = policy_request(client.config(lerobot_features=features, rename_map=rename))
    assert request.cameras == {"cam0": "wrist"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"actions_per_chunk": 0}, "actions_per_chunk is 0"),
        ({"actions_per_chunk": True}, "actions_per_chunk is True"),
        ({"policy_type": ""}, "policy_type is ''"),
        ({"policy_type": None}, "policy_type is None"),
        ({"pretrained_name_or_path": 3}, "pretrained_name_or_path is 3"),
        ({"lerobot_features": None}, "lerobot_features is None"),
        ({"lerobot_features": {"observation.state": 1}}, "expected a set of named values"),
        ({"lerobot_features": {"observation.state": {**STATE, "names": "ab"}}}, "names 'ab'"),
        ({"lerobot_features": {"observation.depth": CAMERA}}, "'observation.depth' of dtype 'video'"),
        ({"rename_map": [1]}, "rename_map is"),
    ],
)
def test_a_bad_request_is_named(client: Any, changes: Any, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        policy_request(client.config(**changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"timestamp": float("nan")}, "timestamp is nan"),
        ({"timestamp": -1e308}, "timestamp is -1e"),
        ({"timestamp": None}, "timestamp is None"),
        ({"timestep": -1}, "timestep is -1"),
        ({"timestep": 1.5}, "timestep is 1.5"),
        ({"observation": [1]}, "not a set of named values"),
        ({"observation": {1: 2}}, "not a set of named values"),
    ],
)
def test_a_bad_observation_is_named(client: Any, changes: Any, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        timed_observation(client.observation(**changes))


def test_must_go_is_what_it_says(client: Any) -> None:
    assert timed_observation(client.observation(must_go=True)).must_go is True
    assert timed_observation(client.observation(must_go="yes")).must_go is False
