"""Diffusion Policy's configuration, read from a checkpoint and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.keypoint_encoder import EncoderConfig, Size
from vla_simd_ros.policies.blocks.unet1d import FINAL_GROUPS, UNetConfig
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    env_state_feature,
    misfit,
    positive,
    renamed_cameras,
    state_feature,
)
from vla_simd_ros.policies.solvers.beta_schedules import SCHEDULES
from vla_simd_ros.policies.solvers.diffusion import (
    DDIM,
    DDPM,
    EPSILON,
    SAMPLE,
    DiffusionProcess,
    DiffusionSolver,
)

# The schedules that each sampler of the training framework knows.
_SCHEDULES = {DDPM: tuple(SCHEDULES), DDIM: ("linear", "scaled_linear", "squaredcos_cap_v2")}
_LEAST_EMBEDDING = 4


@dataclass(frozen=True)
class DiffusionConfig:
    """Features and sizes. Rows ``observation_steps - 1`` to ``+ n_action_steps`` of the ``horizon`` are the
    chunk: those before belong to the observations of the past."""

    cameras: dict[str, Feature]
    state: Feature
    env_state: Feature | None
    action: Feature
    observation_steps: int
    horizon: int
    n_action_steps: int
    encoder: EncoderConfig
    separate_encoders: bool
    unet: UNetConfig
    embedding: int
    solver: DiffusionSolver

    @property
    def spec(self) -> PolicySpec:
        """The specification of a policy with this configuration."""
        return PolicySpec(
            type="diffusion",
            cameras=camera_specs(self.cameras),
            state_dim=self.state.channels,
            env_state_dim=self.env_state.channels if self.env_state else 0,
            action_dim=self.action.channels,
            chunk_size=self.n_action_steps,
            n_action_steps=self.n_action_steps,
            camera_features=renamed_cameras(self.cameras),
            observation_steps=self.observation_steps,
        )


def read_diffusion_config(checkpoint: Checkpoint) -> DiffusionConfig:
    """Read config.json; absent fields have the values that LeRobot 0.6 gives them. Raises CheckpointError."""
    state = state_feature(checkpoint)
    if state is None:
        raise misfit(
            checkpoint, "input_features", list(checkpoint.features_in), "'observation.state' among them"
        )
    unet = _unet(checkpoint)
    horizon = positive(checkpoint, "horizon", 64)
    action = action_feature(checkpoint)
    config = DiffusionConfig(
        cameras=checkpoint.cameras,
        state=state,
        env_state=env_state_feature(checkpoint),
        action=action,
        observation_steps=positive(checkpoint, "n_obs_steps", 2),
        horizon=horizon,
        n_action_steps=positive(checkpoint, "n_action_steps", 32),
        encoder=_encoder(checkpoint),
        separate_encoders=checkpoint.option("use_separate_rgb_encoder_per_camera", bool, True),
        unet=unet,
        embedding=positive(checkpoint, "diffusion_step_embed_dim", 128),
        solver=_solver(checkpoint, (horizon, action.channels)),
    )
    _check(checkpoint, config)
    return config


def _encoder(checkpoint: Checkpoint) -> EncoderConfig:
    resized, cropped = _size(checkpoint, "resize_shape"), _size(checkpoint, "crop_shape")
    ratio = checkpoint.option("crop_ratio", float, 1.0)
    if not 0 < ratio <= 1:
        raise misfit(checkpoint, "crop_ratio", ratio, "more than 0, at most 1")
    if resized is not None:
        # Then it is the ratio that says what is cropped.
        height, width = resized
        cropped = (int(height * ratio), int(width * ratio)) if ratio < 1 else None
    return EncoderConfig(
        backbone=checkpoint.option("vision_backbone", str, "resnet18"),
        group_norm=checkpoint.option("use_group_norm", bool, False),
        keypoints=positive(checkpoint, "spatial_softmax_num_keypoints", 32),
        resized=resized,
        cropped=cropped,
    )


def _unet(checkpoint: Checkpoint) -> UNetConfig:
    widths = checkpoint.option("down_dims", list, [512, 1024, 2048])
    groups = positive(checkpoint, "n_groups", 8)
    if not widths or not all(type(width) is int and width > 0 and width % groups == 0 for width in widths):
        raise misfit(checkpoint, "down_dims", widths, f"multiples of n_groups ({groups})")
    if widths[0] % FINAL_GROUPS:
        raise misfit(checkpoint, "the first of down_dims", widths[0], f"a multiple of {FINAL_GROUPS}")
    kernel = positive(checkpoint, "kernel_size", 5)
    if kernel % 2 == 0:
        raise misfit(checkpoint, "kernel_size", kernel, "an odd number")
    scales = checkpoint.option("use_film_scale_modulation", bool, True)
    return UNetConfig(tuple(widths), kernel, groups, scales)


def _solver(checkpoint: Checkpoint, sample_shape: Size) -> DiffusionSolver:
    kind = _one_of(checkpoint, "noise_scheduler_type", DDPM, (DDPM, DDIM))
    train_steps = positive(checkpoint, "num_train_timesteps", 100)
    steps = positive(checkpoint, "num_inference_steps", train_steps)
    if steps > train_steps:
        raise misfit(checkpoint, "num_inference_steps", steps, f"at most num_train_timesteps ({train_steps})")
    limit = checkpoint.option("clip_sample_range", float, 1.0)
    process = DiffusionProcess(
        train_steps=train_steps,
        schedule=_one_of(checkpoint, "beta_schedule", "squaredcos_cap_v2", _SCHEDULES[kind]),
        beta_start=_variance(checkpoint, "beta_start", 0.0001),
        beta_end=_variance(checkpoint, "beta_end", 0.02),
        prediction=_one_of(checkpoint, "prediction_type", EPSILON, (EPSILON, SAMPLE)),
        clip=limit if checkpoint.option("clip_sample", bool, True) else None,
    )
    return DiffusionSolver(kind, process, steps, sample_shape)


def _check(checkpoint: Checkpoint, config: DiffusionConfig) -> None:
    if not config.cameras and config.env_state is None:
        raise misfit(
            checkpoint, "input_features", list(checkpoint.features_in), "a camera or an environment state"
        )
    check_cameras(checkpoint)
    _check_sizes(checkpoint, config)
    factor = 2 ** len(config.unet.widths)
    if config.horizon % factor:
        raise misfit(
            checkpoint,
            "horizon",
            config.horizon,
            f"a multiple of {factor} ({len(config.unet.widths)} down_dims)",
        )
    most = config.horizon - config.observation_steps + 1
    if config.n_action_steps > most:
        raise misfit(
            checkpoint, "n_action_steps", config.n_action_steps, f"at most horizon - n_obs_steps + 1 ({most})"
        )
    if config.embedding % 2 or config.embedding < _LEAST_EMBEDDING:
        raise misfit(
            checkpoint,
            "diffusion_step_embed_dim",
            config.embedding,
            f"an even number from {_LEAST_EMBEDDING}",
        )


def _check_sizes(checkpoint: Checkpoint, config: DiffusionConfig) -> None:
    """All cameras are of one size, and larger than what is cropped from them."""
    shapes = {feature.shape[1:] for feature in config.cameras.values()}
    if len(shapes) > 1:
        found = ", ".join(f"{height}x{width}" for height, width in sorted(shapes))
        raise misfit(checkpoint, "size of the cameras", found, "the same for all")
    cropped = config.encoder.cropped
    for whole in () if config.encoder.resized else shapes:
        if cropped is not None and (cropped[0] > whole[0] or cropped[1] > whole[1]):
            raise misfit(checkpoint, "crop_shape", list(cropped), f"at most the frames' {list(whole)}")


def _size(checkpoint: Checkpoint, name: str) -> Size | None:
    if checkpoint.config.get(name) is None:
        return None
    values = checkpoint.option(name, list)
    if len(values) != 2 or not all(type(value) is int and value > 0 for value in values):
        raise misfit(checkpoint, name, values, "[height, width] in pixels")
    return values[0], values[1]


def _variance(checkpoint: Checkpoint, name: str, default: float) -> float:
    value: float = checkpoint.option(name, float, default)
    if not 0 < value < 1:
        raise misfit(checkpoint, name, value, "between 0 and 1")
    return value


def _one_of(checkpoint: Checkpoint, name: str, default: str, known: tuple[str, ...]) -> str:
    value: str = checkpoint.option(name, str, default)
    if value not in known:
        raise misfit(checkpoint, name, f"'{value}'", f"one of {', '.join(known)}")
    return value
