"""Reading and checking what the configurations of several policies have in common."""

from __future__ import annotations

from collections.abc import Mapping

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.policies.base import CameraSpec

STATE = "observation.state"
ACTION = "action"
_COLOURS = 3
_ACTIVATIONS = ("relu", "gelu")


def misfit(checkpoint: Checkpoint, name: str, value: object, expected: str) -> CheckpointError:
    """The error of a field of config.json that has another value than expected."""
    return CheckpointError(f"{checkpoint.folder / 'config.json'}: {name} is {value}, expected {expected}")


def positive(checkpoint: Checkpoint, name: str, default: int) -> int:
    """Field ``name``, a whole number of 1 or more."""
    value: int = checkpoint.option(name, int, default)
    if value < 1:
        raise misfit(checkpoint, name, value, "1 or more")
    return value


def chunk_rows(checkpoint: Checkpoint, predicted: int, executed: int | None = None) -> tuple[int, int]:
    """Fields ``chunk_size`` and ``n_action_steps``, which is no more; by default ``predicted`` rows, and
    ``executed`` of them (None: all)."""
    chunk_size = positive(checkpoint, "chunk_size", predicted)
    steps = positive(checkpoint, "n_action_steps", min(executed or chunk_size, chunk_size))
    if steps > chunk_size:
        raise misfit(checkpoint, "n_action_steps", steps, f"at most chunk_size ({chunk_size})")
    return chunk_size, steps


def width_and_heads(checkpoint: Checkpoint, width: int, heads: int) -> tuple[int, int]:
    """Fields ``dim_model`` and ``n_heads``, of which the second divides the first."""
    width, heads = positive(checkpoint, "dim_model", width), positive(checkpoint, "n_heads", heads)
    if width % heads:
        raise misfit(checkpoint, "dim_model", width, f"a multiple of n_heads ({heads})")
    return width, heads


def feedforward_activation(checkpoint: Checkpoint) -> str:
    """Field ``feedforward_activation`` of a transformer."""
    activation: str = checkpoint.option("feedforward_activation", str, "relu")
    if activation not in _ACTIVATIONS:
        # LeRobot's configuration also admits 'glu', which its own network cannot run: it halves the width.
        raise misfit(checkpoint, "feedforward_activation", f"'{activation}'", " or ".join(_ACTIVATIONS))
    return activation


def state_feature(checkpoint: Checkpoint) -> Feature | None:
    """The robot's state, where the policy takes it."""
    feature = checkpoint.features_in.get(STATE)
    return None if feature is None else _of_kind(checkpoint, feature, FeatureKind.STATE)


def env_state_feature(checkpoint: Checkpoint) -> Feature | None:
    """The environment's state, where the policy takes it."""
    found = [f for f in checkpoint.features_in.values() if f.kind is FeatureKind.ENV]
    return found[0] if found else None


def action_feature(checkpoint: Checkpoint) -> Feature:
    """What the policy predicts."""
    if ACTION not in checkpoint.features_out:
        raise misfit(checkpoint, "output_features", list(checkpoint.features_out), f"'{ACTION}' among them")
    return _of_kind(checkpoint, checkpoint.features_out[ACTION], FeatureKind.ACTION)


def check_cameras(checkpoint: Checkpoint) -> None:
    """Every image is one of three colours."""
    for feature in checkpoint.cameras.values():
        if feature.channels != _COLOURS:
            raise CheckpointError(
                f"{checkpoint.folder}: camera '{feature.camera}' has shape {list(feature.shape)}, "
                f"expected [{_COLOURS}, height, width]"
            )


def check_one_moment(checkpoint: Checkpoint) -> None:
    """A query is made of one observation, of the present."""
    steps = checkpoint.option("n_obs_steps", int, 1)
    if steps != 1:
        raise misfit(checkpoint, "n_obs_steps", steps, "1")


def camera_specs(cameras: Mapping[str, Feature]) -> dict[str, CameraSpec]:
    """The images that a policy expects, by camera name."""
    return {name: CameraSpec(*feature.shape[1:]) for name, feature in cameras.items()}


def renamed_cameras(cameras: Mapping[str, Feature]) -> dict[str, str]:
    """The checkpoint's own name of each camera that its preprocessor renames."""
    return {name: feature.camera for name, feature in cameras.items() if name != feature.camera}


def _of_kind(checkpoint: Checkpoint, feature: Feature, kind: FeatureKind) -> Feature:
    """The feature; the kind that is declared decides its normalization, so it must be the right one."""
    if feature.kind is not kind:
        raise misfit(checkpoint, f"type of '{feature.name}'", feature.kind.value, kind.value)
    return feature
