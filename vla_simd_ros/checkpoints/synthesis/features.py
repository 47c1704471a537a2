"""Features, statistics and processor files of a random checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_simd_ros.checkpoints.synthesis.options import Options
from vla_simd_ros.checkpoints.synthesis.weights import F32, WeightMaker

ACTION = "action"
STATE = "observation.state"
ENV_STATE = "observation.environment_state"

# Per channel, of the photographs that the backbones were trained on.
_IMAGE_STATISTICS = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "min": (0.0, 0.0, 0.0),
    "max": (1.0, 1.0, 1.0),
    "q01": (0.02, 0.02, 0.02),
    "q10": (0.12, 0.1, 0.08),
    "q90": (0.88, 0.85, 0.82),
    "q99": (0.99, 0.99, 0.99),
}
# Distance from the mean in standard deviations.
_QUANTILES = {"min": -3.0, "q01": -2.3, "q10": -1.3, "q90": 1.3, "q99": 2.3, "max": 3.0}


def input_features(options: Options) -> dict[str, Any]:
    """``input_features`` of config.json: cameras first, then the robot's state, then the environment's."""
    features: dict[str, Any] = {
        f"observation.images.{camera.name}": {"type": "VISUAL", "shape": [3, camera.height, camera.width]}
        for camera in options.cameras
    }
    if options.state_dim:
        features[STATE] = {"type": "STATE", "shape": [options.state_dim]}
    if options.env_state_dim:
        features[ENV_STATE] = {"type": "ENV", "shape": [options.env_state_dim]}
    return features


def output_features(options: Options) -> dict[str, Any]:
    """``output_features`` of config.json."""
    return {ACTION: {"type": "ACTION", "shape": [options.action_dim]}}


def common_config(policy: str, options: Options, observation_steps: int = 1) -> dict[str, Any]:
    """The fields that LeRobot writes for every policy, first in config.json."""
    return {
        "type": policy,
        "n_obs_steps": observation_steps,
        "input_features": input_features(options),
        "output_features": output_features(options),
        "device": "cpu",
        "use_amp": False,
        "push_to_hub": False,
        "repo_id": None,
        "private": None,
        "tags": None,
        "license": None,
    }


def normalization_mapping(options: Options) -> dict[str, str]:
    """``normalization_mapping`` of config.json: everything by mean and standard deviation."""
    kinds = ["VISUAL", "STATE", *(["ENV"] if options.env_state_dim else []), "ACTION"]
    return dict.fromkeys(kinds, "MEAN_STD")


def statistics(seed: int, features: dict[str, Any]) -> dict[str, F32]:
    """Statistics of each feature; joints in radians, as of an arm that moves about its rest pose."""
    values: dict[str, F32] = {}
    draw = WeightMaker(seed).draw
    for name, feature in features.items():
        if feature["type"] == "VISUAL":
            for statistic, channels in _IMAGE_STATISTICS.items():
                values[f"{name}.{statistic}"] = np.array(channels, np.float32).reshape(3, 1, 1)
            continue
        shape = tuple(feature["shape"])
        mean = draw(f"{name}.mean", shape, -0.3, 0.3)
        std = draw(f"{name}.std", shape, 0.2, 0.6)
        values[f"{name}.mean"], values[f"{name}.std"] = mean, std
        for statistic, distance in _QUANTILES.items():
            values[f"{name}.{statistic}"] = mean + np.float32(distance) * std
    return values


def preprocessor_steps(
    config: dict[str, Any], extra: tuple[dict[str, Any], ...] = ()
) -> list[dict[str, Any]]:
    """Steps of policy_preprocessor.json; ``extra`` ones come before the data is moved to its device."""
    return [
        {"registry_name": "rename_observations_processor", "config": {"rename_map": {}}},
        {"registry_name": "to_batch_processor", "config": {}},
        *extra,
        _device_step(),
        _normalization_step(
            "normalizer_processor", config, config["input_features"] | config["output_features"]
        ),
    ]


def postprocessor_steps(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps of policy_postprocessor.json."""
    return [_normalization_step("unnormalizer_processor", config, config["output_features"]), _device_step()]


def _device_step() -> dict[str, Any]:
    return {"registry_name": "device_processor", "config": {"device": "cpu", "float_dtype": None}}


def _normalization_step(name: str, config: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    settings = {"eps": 1e-08, "features": features, "norm_map": config["normalization_mapping"]}
    return {"registry_name": name, "config": settings}
