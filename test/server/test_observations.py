"""The policy's view of what a client's robot saw: cameras by the policy's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.policies.base import CameraSpec, PolicySpec
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.observations import check_request, policy_observation, state_vector
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


@pytest.mark.parametrize(
    "value", [1e300, -1e39, float("nan"), np.float64("inf"), True, "1", None, np.zeros(1)]
)
def test_values_of_the_state_that_are_no_finite_numbers_of_the_policy(value: Any) -> None:
    asked = PolicyRequest("act", "somewhere", 5, ("pan",), {}, "cpu")
    with pytest.raises(WireError, match=r"'pan' is .*, expected a finite number"):
        state_vector(TimedObservation(0.0, 0, {"pan": value}, False), asked)


@pytest.mark.parametrize("value", [1e38, 2**63 - 1, np.float16(2), np.int8(-3), np.uint64(2**64 - 1), 5e-324])
def test_numbers_of_every_kind_are_values_of_the_state(value: Any) -> None:
    asked = PolicyRequest("act", "somewhere", 5, ("pan",), {}, "cpu")
    state = state_vector(TimedObservation(0.0, 0, {"pan": value}, False), asked)
    assert state.dtype == np.float32 and state.tolist() == [np.float32(value)]
