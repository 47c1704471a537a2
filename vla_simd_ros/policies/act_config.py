"""The configuration that ACT and its descendants share, read from a checkpoint and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.policies.base import CameraSpec, PolicySpec
from vla_simd_ros.policies.blocks.transformer import TransformerConfig

STATE = "observation.state"
ACTION = "action"
_COLOURS = 3
_ACTIVATIONS = ("relu", "gelu")


@dataclass(frozen=True)
class ActConfig:
    """Features and sizes; ``state`` and ``env_state`` are None where the policy takes none."""

    cameras: dict[str, Feature]
    state: Feature | None
    env_state: Feature | None
    action: Feature
    backbone: str
    dilated: bool
    transformer: TransformerConfig
    encoder_layers: int
    decoder_layers: int
    chunk_size: int
    n_action_steps: int
    latent_dim: int
    temporal_ensemble_coeff: float | None

    def spec(self, policy: str, max_instruction_tokens: int = 0) -> PolicySpec:
        """The specification of a policy with this configuration."""
        return PolicySpec(
            type=policy,
            cameras={name: CameraSpec(*feature.shape[1:]) for name, feature in self.cameras.items()},
            state_dim=self.state.channels if self.state else 0,
            env_state_dim=self.env_state.channels if self.env_state else 0,
            action_dim=self.action.channels,
            chunk_size=self.chunk_size,
            n_action_steps=self.n_action_steps,
            uses_instruction=max_instruction_tokens > 0,
            max_instruction_tokens=max_instruction_tokens,
            temporal_ensemble_coeff=self.temporal_ensemble_coeff,
            camera_features={
                name: feature.camera for name, feature in self.cameras.items() if name != feature.camera
            },
        )


def read_act_config(
    checkpoint: Checkpoint, *, encoder_layers: int, decoder_layers: int, chunk: int
) -> ActConfig:
    """Read config.json; the arguments are the policy's own defaults. Raises CheckpointError."""
    chunk_size = _positive(checkpoint, "chunk_size", chunk)
    config = ActConfig(
        cameras=checkpoint.cameras,
        state=_state(checkpoint),
        env_state=_environment(checkpoint),
        action=_action(checkpoint),
        backbone=checkpoint.option("vision_backbone", str, "resnet18"),
        dilated=checkpoint.option("replace_final_stride_with_dilation", bool, False),
        transformer=_transformer(checkpoint),
        encoder_layers=_positive(checkpoint, "n_encoder_layers", encoder_layers),
        decoder_layers=_positive(checkpoint, "n_decoder_layers", decoder_layers),
        chunk_size=chunk_size,
        n_action_steps=_positive(checkpoint, "n_action_steps", chunk_size),
        latent_dim=_positive(checkpoint, "latent_dim", 32),
        temporal_ensemble_coeff=_coefficient(checkpoint),
    )
    _check(checkpoint, config)
    return config


def _transformer(checkpoint: Checkpoint) -> TransformerConfig:
    width = _positive(checkpoint, "dim_model", 512)
    heads = _positive(checkpoint, "n_heads", 8)
    if width % heads:
        raise _error(checkpoint, "dim_model", width, f"a multiple of n_heads ({heads})")
    activation = checkpoint.option("feedforward_activation", str, "relu")
    if activation not in _ACTIVATIONS:
        # LeRobot's configuration also admits 'glu', which its own network cannot run: it halves the width.
        raise _error(checkpoint, "feedforward_activation", f"'{activation}'", " or ".join(_ACTIVATIONS))
    return TransformerConfig(
        width=width,
        heads=heads,
        feedforward=_positive(checkpoint, "dim_feedforward", 3200),
        activation=activation,
        pre_norm=checkpoint.option("pre_norm", bool, False),
    )


def _check(checkpoint: Checkpoint, config: ActConfig) -> None:
    if not config.cameras and config.env_state is None:
        raise _error(
            checkpoint, "input_features", list(checkpoint.features_in), "a camera or an environment state"
        )
    for feature in config.cameras.values():
        if feature.channels != _COLOURS:
            raise CheckpointError(
                f"{checkpoint.folder}: camera '{feature.camera}' has shape {list(feature.shape)}, "
                f"expected [{_COLOURS}, height, width]"
            )
    if config.cameras and config.transformer.width % 4:
        raise _error(
            checkpoint, "dim_model", config.transformer.width, "a multiple of 4 (2-D sine positions)"
        )
    if config.n_action_steps > config.chunk_size:
        raise _error(
            checkpoint, "n_action_steps", config.n_action_steps, f"at most chunk_size ({config.chunk_size})"
        )
    steps = checkpoint.option("n_obs_steps", int, 1)
    if steps != 1:
        raise _error(checkpoint, "n_obs_steps", steps, "1")


def _coefficient(checkpoint: Checkpoint) -> float | None:
    name = "temporal_ensemble_coeff"
    return None if checkpoint.config.get(name) is None else float(checkpoint.option(name, float))


def _state(checkpoint: Checkpoint) -> Feature | None:
    return _of_kind(checkpoint, checkpoint.features_in.get(STATE), FeatureKind.STATE)


def _of_kind(checkpoint: Checkpoint, feature: Feature | None, kind: FeatureKind) -> Feature | None:
    """The feature; the kind that is declared decides its normalization, so it must be the right one."""
    if feature is not None and feature.kind is not kind:
        raise _error(checkpoint, f"type of '{feature.name}'", feature.kind.value, kind.value)
    return feature


def _environment(checkpoint: Checkpoint) -> Feature | None:
    found = [f for f in checkpoint.features_in.values() if f.kind is FeatureKind.ENV]
    return found[0] if found else None


def _action(checkpoint: Checkpoint) -> Feature:
    action = _of_kind(checkpoint, checkpoint.features_out.get(ACTION), FeatureKind.ACTION)
    if action is None:
        raise _error(checkpoint, "output_features", list(checkpoint.features_out), f"'{ACTION}' among them")
    return action


def _positive(checkpoint: Checkpoint, name: str, default: int) -> int:
    value: int = checkpoint.option(name, int, default)
    if value < 1:
        raise _error(checkpoint, name, value, "1 or more")
    return value


def _error(checkpoint: Checkpoint, name: str, value: object, expected: str) -> CheckpointError:
    return CheckpointError(f"{checkpoint.folder / 'config.json'}: {name} is {value}, expected {expected}")
