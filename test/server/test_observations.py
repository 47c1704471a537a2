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
