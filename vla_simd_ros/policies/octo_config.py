"""The configuration of an Octo checkpoint, read and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.conv_stem import GROUPS, StemConfig
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    chunk_rows,
    misfit,
    positive,
    renamed_cameras,
)

_STEM_CHANNELS = [32, 96, 192, 384]


@dataclass(frozen=True)
class HeadConfig:
    """The diffusion head: widths of its parts, its steps, and the bound of what it predicts."""

    time_dim: int
    width: int
    blocks: int
    steps: int
    bound: float


@dataclass(frozen=True)
class OctoConfig:
    """Features and sizes.

    ``action_width`` is the network's own, of which the first columns are the robot's. ``horizon`` is how many
    steps there are positions for, ``window`` how many are used.
    """

    cameras: dict[str, Feature]
    action: Feature
    action_width: int
    chunk_size: int
    n_action_steps: int
    window: int
    horizon: int
    width: int
    layers: int
    heads: int
    feedforward: int
    readouts: int
    repeat_task: bool
    correct_attention: bool
    sees_goal: bool
    max_tokens: int
    stem: StemConfig
    head: HeadConfig

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size, and the window of observations."""
        return PolicySpec(
            type="octo",
            cameras=camera_specs(self.cameras),
            state_dim=0,
            env_state_dim=0,
            action_dim=self.action.channels,
            chunk_size=self.chunk_size,
            n_action_steps=self.n_action_steps,
            uses_instruction=True,
            max_instruction_tokens=self.max_tokens,
            camera_features=renamed_cameras(self.cameras),
            observation_steps=self.window,
            takes_observation_mask=self.window > 1,
        )


def read_octo_config(checkpoint: Checkpoint) -> OctoConfig:
    """Read config.json. Raises CheckpointError."""
    chunk_size, steps = chunk_rows(checkpoint, 4)
    config = OctoConfig(
        cameras=checkpoint.cameras,
        action=action_feature(checkpoint),
        action_width=positive(checkpoint, "max_action_dim", 7),
        chunk_size=chunk_size,
        n_action_steps=steps,
        window=positive(checkpoint, "n_obs_steps", 2),
        horizon=positive(checkpoint, "max_horizon", 10),
        width=positive(checkpoint, "dim_model", 384),
        layers=positive(checkpoint, "n_layers", 12),
        heads=positive(checkpoint, "n_heads", 6),
        feedforward=positive(checkpoint, "dim_feedforward", 1536),
        readouts=positive(checkpoint, "n_readouts", 1),
        repeat_task=checkpoint.option("repeat_task_tokens", bool, True),
        correct_attention=checkpoint.option("use_correct_attention", bool, True),
        sees_goal=checkpoint.option("sees_goal", bool, True),
        max_tokens=positive(checkpoint, "tokenizer_max_length", 16),
        stem=_stem(checkpoint),
        head=_head(checkpoint),
    )
    _check(checkpoint, config)
    return config


def _stem(checkpoint: Checkpoint) -> StemConfig:
    channels = checkpoint.option("stem_channels", list, _STEM_CHANNELS)
    fits = channels and all(type(c) is int and c > 0 and c % GROUPS == 0 for c in channels)
    if not fits:
        raise misfit(checkpoint, "stem_channels", channels, f"positive multiples of {GROUPS} (group norm)")
    patch = positive(checkpoint, "patch_size", 16)
    stem = StemConfig(tuple(channels), positive(checkpoint, "stem_width", 512), patch)
    if patch % stem.stride:
        stages = f"the stride of {len(channels)} convolutions"
        raise misfit(checkpoint, "patch_size", patch, f"a multiple of {stem.stride}, {stages}")
    return stem


def _head(checkpoint: Checkpoint) -> HeadConfig:
    bound = float(checkpoint.option("max_action", float, 5.0))
    if not bound > 0:
        raise misfit(checkpoint, "max_action", bound, "a positive number")
    time_dim = positive(checkpoint, "time_dim", 32)
    if time_dim % 2:
        raise misfit(checkpoint, "time_dim", time_dim, "an even number (cosines and sines)")
    return HeadConfig(
        time_dim=time_dim,
        width=positive(checkpoint, "head_width", 256),
        blocks=positive(checkpoint, "head_blocks", 3),
        steps=positive(checkpoint, "diffusion_steps", 20),
        bound=bound,
    )


def _check(checkpoint: Checkpoint, config: OctoConfig) -> None:
    if not config.cameras:
        raise misfit(checkpoint, "input_features", list(checkpoint.features_in), "a camera")
    check_cameras(checkpoint)
    for name, feature in config.cameras.items():
        if any(size % config.stem.patch or size == 0 for size in feature.shape[1:]):
            expected = f"multiples of patch_size ({config.stem.patch})"
            raise misfit(checkpoint, f"shape of camera '{name}'", list(feature.shape), expected)
    if config.width % config.heads:
        raise misfit(checkpoint, "dim_model", config.width, f"a multiple of n_heads ({config.heads})")
    for name, value, most in (
        ("n_obs_steps", config.window, config.horizon),
        ("width of the action", config.action.channels, config.action_width),
    ):
        if value > most:
            raise misfit(checkpoint, name, value, f"at most {most}")
