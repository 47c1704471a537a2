from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.executors.base import InputError
from vla_simd_ros.observation import Observation, blank_observation, observation_inputs
from vla_simd_ros.policies.base import CameraSpec, PolicySpec

SPEC = PolicySpec("diffusion", {"top": CameraSpec(2, 3)}, 2, 1, 2, 4, 4, observation_steps=3)
MASKED = PolicySpec("octo", {}, 2, 0, 2, 4, 4, observation_steps=2, takes_observation_mask=True)
IMAGES = np.arange(3 * 2 * 3 * 3, dtype=np.uint8).reshape(3, 2, 3, 3)
STATES = np.arange(6, dtype=np.float32).reshape(3, 2)
ENV = np.arange(3, dtype=np.float64).reshape(3, 1)


def test_every_observation_step_is_laid_out() -> None:
    inputs = observation_inputs(SPEC, Observation({"top": IMAGES}, STATES, ENV))
    assert list(inputs) == ["image.top.0", "image.top.1", "image.top.2", "state", "env_state"]
    for step in range(3):
        np.testing.assert_array_equal(inputs[f"image.top.{step}"], IMAGES[step])
    np.testing.assert_array_equal(inputs["state"], STATES)
    np.testing.assert_array_equal(inputs["env_state"], ENV.astype(np.float32))
    assert inputs["env_state"].dtype == np.float32


def test_the_mask_of_a_policy_that_takes_one() -> None:
    states = STATES[:2]
    everything = observation_inputs(MASKED, Observation({}, states))
    np.testing.assert_array_equal(everything["observation_mask"], [[1], [1]])
    first = Observation({}, states, valid=np.array([False, True]))
    mask = observation_inputs(MASKED, first)["observation_mask"]
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(mask, [[0], [1]])


def test_a_blank_observation_fits() -> None:
    for spec in (SPEC, MASKED):
        inputs = observation_inputs(spec, blank_observation(spec))
        assert all(not value.any() for name, value in inputs.items() if name != "observation_mask")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"images": {"top": IMAGES[0]}},
            r"got an array of shape \[2, 3, 3\], the checkpoint expects 3 images",
        ),
        (
            {"images": {"top": IMAGES[:2]}},
            r"got an array of shape \[2, 2, 3, 3\], the checkpoint expects 3 im",
        ),
        (
            {"images": {"top": IMAGES[:, :, :2]}},
            "camera 'top': got 2x2 uint8 with 3 channels, the checkpoint",
        ),
        ({"state": STATES[0]}, r"state: got shape \[2\], the checkpoint expects \[3, 2\]"),
        ({"state": None}, r"state is missing, the checkpoint expects \[3, 2\]"),
        (
            {"env_state": np.where(ENV == 1, np.nan, ENV)},
            "env_state: value 0 of row 1 is nan, expected a fin",
        ),
        ({"valid": np.ones(2, np.bool_)}, r"valid: got bool \[2\], the checkpoint expects bool \[3\]"),
        ({"valid": np.ones(3)}, r"valid: got float64 \[3\], the checkpoint expects bool \[3\]"),
        ({"valid": np.array([True, True, False])}, "the newest observation is not valid"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"images": {"top": IMAGES}, "state": STATES, "env_state": ENV}
    with pytest.raises(InputError, match=message):
        observation_inputs(SPEC, Observation(**{**whole, **changes}))
