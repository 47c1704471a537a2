"""The policy's view of what a client's robot saw: cameras by the policy's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.policies.base import CameraSpec, PolicySpec
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.observations import check_request, policy_observation
from vla_simd_ros.server.requests import PolicyRequest, TimedObservation

CAMERA = CameraSpec(4, 6)
SPEC = PolicySpec("act", {"top": CAMERA, "wrist": CAMERA}, 0, 0, 2, 5, 5, camera_features={"top": "front"})


def request(**cameras: str) -> PolicyRequest:
    values: dict[str, Any] = {"actions_per_chunk": 5, "state_names": (), "device": "cpu"}
    return PolicyRequest(policy_type="act", checkpoint="somewhere", cameras=cameras, **values)


def test_the_clients_renaming_stands_in_for_the_checkpoints() -> None:
    """LeRobot's server replaces the checkpoint's rename_map by the client's: it names features."""
    asked = request(cam0="front", wrist="wrist")
    check_request(asked, SPEC)
    frames = {"cam0": np.full((4, 6, 3), 1, np.uint8), "wrist": np.full((4, 6, 3), 2, np.uint8)}
    observation = policy_observation(TimedObservation(0.0, 0, frames, False), asked, SPEC)
    assert {name: int(image[0, 0, 0]) for name, image in observation.images.items()} == {"top": 1, "wrist": 2}


def test_other_cameras_are_refused_by_the_names_that_a_client_can_give() -> None:
    with pytest.raises(WireError, match="cameras are top, wrist, the policy expects front, wrist"):
        check_request(request(top="top", wrist="wrist"), SPEC)


def test_several_observation_steps() -> None:
    spec = PolicySpec("octo", {"top": CAMERA}, 1, 0, 2, 5, 5, observation_steps=3)
    asked = PolicyRequest("octo", "somewhere", 5, ("pan",), {"top": "top"}, "cpu")

    def seen(value: int) -> TimedObservation:
        values = {"top": np.full((4, 6, 3), value, np.uint8), "pan": float(value)}
        return TimedObservation(0.0, value, values, False)

    observation = policy_observation(seen(3), asked, spec, [None, seen(2)])
    assert observation.images["top"].shape == (3, 4, 6, 3)
    assert observation.images["top"][:, 0, 0, 0].tolist() == [2, 2, 3]
    assert observation.state is not None and observation.state.tolist() == [[2.0], [2.0], [3.0]]
    assert observation.valid is not None and observation.valid.tolist() == [False, True, True]
