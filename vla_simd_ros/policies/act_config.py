"""The configuration that ACT and its descendants share, read from a checkpoint and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.resnet import PUBLISHED_WIDTH
from vla_simd_ros.policies.blocks.transformer import TransformerConfig
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    check_one_moment,
    chunk_rows,
    env_state_feature,
    feedforward_activation,
    misfit,
    positive,
    renamed_cameras,
    state_feature,
    width_and_heads,
)


@dataclass(frozen=True)
class ActConfig:
    """Features and sizes; ``state`` and ``env_state`` are None where the policy takes none."""

    cameras: dict[str, Feature]
    state: Feature | None
    env_state: Feature | None
    action: Feature
    backbone: str
    backbone_width: int
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
            cameras=camera_specs(self.cameras),
            state_dim=self.state.channels if self.state else 0,
            env_state_dim=self.env_state.channels if self.env_state else 0,
            action_dim=self.action.channels,
            chunk_size=self.chunk_size,
            n_action_steps=self.n_action_steps,
            uses_instruction=max_instruction_tokens > 0,
            max_instruction_tokens=max_instruction_tokens,
            temporal_ensemble_coeff=self.temporal_ensemble_coeff,
            camera_features=renamed_cameras(self.cameras),
        )


def read_act_config(
    checkpoint: Checkpoint, *, encoder_layers: int, decoder_layers: int, chunk: int
) -> ActConfig:
    """Read config.json; the arguments are the policy's own defaults. Raises CheckpointError."""
    chunk_size, steps = chunk_rows(checkpoint, chunk)
    config = ActConfig(
        cameras=checkpoint.cameras,
        state=state_feature(checkpoint),
        env_state=env_state_feature(checkpoint),
        action=action_feature(checkpoint),
        backbone=checkpoint.option("vision_backbone", str, "resnet18"),
        backbone_width=positive(checkpoint, "backbone_width", PUBLISHED_WIDTH),
        dilated=checkpoint.option("replace_final_stride_with_dilation", bool, False),
        transformer=_transformer(checkpoint),
        encoder_layers=positive(checkpoint, "n_encoder_layers", encoder_layers),
        decoder_layers=positive(checkpoint, "n_decoder_layers", decoder_layers),
        chunk_size=chunk_size,
        n_action_steps=steps,
        latent_dim=positive(checkpoint, "latent_dim", 32),
        temporal_ensemble_coeff=_coefficient(checkpoint),
    )
    _check(checkpoint, config)
    return config


def _transformer(checkpoint: Checkpoint) -> TransformerConfig:
    width, heads = width_and_heads(checkpoint, 512, 8)
    return TransformerConfig(
        width=width,
        heads=heads,
        feedforward=positive(checkpoint, "dim_feedforward", 3200),
        activation=feedforward_activation(checkpoint),
        pre_norm=checkpoint.option("pre_norm", bool, False),
    )


def _check(checkpoint: Checkpoint, config: ActConfig) -> None:
    if not config.cameras and config.env_state is None:
        raise misfit(
            checkpoint, "input_features", list(checkpoint.features_in), "a camera or an environment state"
        )
    check_cameras(checkpoint)
    if config.cameras and config.transformer.width % 4:
        raise misfit(
            checkpoint, "dim_model", config.transformer.width, "a multiple of 4 (2-D sine positions)"
        )
    check_one_moment(checkpoint)


def _coefficient(checkpoint: Checkpoint) -> float | None:
    name = "temporal_ensemble_coeff"
    return None if checkpoint.config.get(name) is None else float(checkpoint.option(name, float))
