"""What the configurations of driving planners have in common, read from a checkpoint and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import CONFIG, Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks import trajectory
from vla_simd_ros.policies.blocks.eva import EvaConfig
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.blocks.transformer import TransformerConfig
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    chunk_rows,
    misfit,
    positive,
    renamed_cameras,
    state_feature,
)

_MAX_TOKENS = 76


@dataclass(frozen=True)
class QueryConfig:
    """The heads that ask about the scene: ``count`` queries and ``layers`` layers each."""

    transformer: TransformerConfig
    layers: int
    count: int


@dataclass(frozen=True)
class DrivingConfig:
    """Features and sizes; ``height`` and ``width`` are those of every view in pixels."""

    type: str
    cameras: dict[str, Feature]
    height: int
    width: int
    state: Feature
    action: Feature
    chunk_size: int
    n_action_steps: int
    max_tokens: int
    vision: EvaConfig
    queries: QueryConfig
    text: LlamaConfig
    text_layers: int
    vocabulary: int

    @property
    def spec(self) -> PolicySpec:
        """The specification of a policy with this configuration."""
        return PolicySpec(
            type=self.type,
            cameras=camera_specs(self.cameras),
            state_dim=self.state.channels,
            env_state_dim=0,
            action_dim=self.action.channels,
            chunk_size=self.chunk_size,
            n_action_steps=self.n_action_steps,
            uses_instruction=True,
            max_instruction_tokens=self.max_tokens,
            camera_features=renamed_cameras(self.cameras),
        )


def read_driving_config(checkpoint: Checkpoint, *, biased: bool) -> DrivingConfig:
    """Read config.json; ``biased`` tells whether the language model's projections have biases. Raises
    CheckpointError."""
    state = state_feature(checkpoint)
    if state is None:
        raise misfit(checkpoint, "input_features", list(checkpoint.features_in), "the vehicle's state too")
    action = action_feature(checkpoint)
    for feature, columns in ((state, trajectory.STATE), (action, trajectory.ACTION)):
        if feature.shape != (len(columns),):
            expected = f"[{len(columns)}]: {', '.join(columns)}"
            raise misfit(checkpoint, f"shape of '{feature.name}'", list(feature.shape), expected)
    vision = _vision(_part(checkpoint, "vision_config"))
    height, width = _view(checkpoint, vision.patch)
    chunk_size, steps = chunk_rows(checkpoint, 20)
    text = _part(checkpoint, "text_config")
    return DrivingConfig(
        type=checkpoint.type,
        cameras=checkpoint.cameras,
        height=height,
        width=width,
        state=state,
        action=action,
        chunk_size=chunk_size,
        n_action_steps=steps,
        max_tokens=positive(checkpoint, "tokenizer_max_length", _MAX_TOKENS),
        vision=vision,
        queries=_queries(_part(checkpoint, "query_config")),
        text=_text(text, biased),
        text_layers=text.size("num_hidden_layers", 24),
        vocabulary=text.size("vocab_size", 151936),
    )


def _part(checkpoint: Checkpoint, name: str) -> Stated:
    return Stated(checkpoint.option(name, dict), f"{checkpoint.folder / CONFIG}: {name}")


def _view(checkpoint: Checkpoint, patch: int) -> tuple[int, int]:
    """Height and width of every camera's images."""
    if not checkpoint.cameras:
        raise misfit(checkpoint, "input_features", list(checkpoint.features_in), "a camera among them")
    check_cameras(checkpoint)
    sizes = {feature.shape[1:]: name for name, feature in checkpoint.cameras.items()}
    if len(sizes) > 1:
        shown = ", ".join(f"'{name}' {height}x{width}" for (height, width), name in sizes.items())
        raise misfit(checkpoint, "the size of the cameras' images", shown, "the same for all")
    ((height, width),) = sizes
    if height % patch or width % patch or not height * width:
        raise misfit(
            checkpoint,
            "the size of a camera's images",
            f"{height}x{width}",
            f"multiples of patch_size ({patch})",
        )
    return height, width


def _vision(stated: Stated) -> EvaConfig:
    width = stated.size("hidden_size", 1024)
    heads = stated.heads(width, 16)
    if width // heads % 4:
        raise stated.misfit("hidden_size", width, f"a multiple of 4 for each of {heads} heads")
    return EvaConfig(
        width=width,
        heads=heads,
        feedforward=stated.size("intermediate_size", 2730),
        layers=stated.size("num_hidden_layers", 24),
        patch=stated.size("patch_size", 16),
        window=stated.size("window_size", 16),
        global_every=stated.size("global_every", 3),
        eps=stated.number("layer_norm_eps", 1e-6),
        base=stated.number("rope_theta", 10000.0),
    )


def _queries(stated: Stated) -> QueryConfig:
    width = stated.size("hidden_size", 256)
    transformer = TransformerConfig(
        width=width,
        heads=stated.heads(width, 8),
        feedforward=stated.size("intermediate_size", 2048),
        activation="relu",
        pre_norm=False,
    )
    return QueryConfig(transformer, stated.size("num_hidden_layers", 6), stated.size("num_queries", 256))


def _text(stated: Stated, biased: bool) -> LlamaConfig:
    width = stated.size("hidden_size", 896)
    heads = stated.heads(width, 14)
    head, shared = width // heads, stated.size("num_key_value_heads", heads)
    if heads % shared:
        raise stated.misfit("num_key_value_heads", shared, f"a divisor of num_attention_heads ({heads})")
    if head % 2:
        raise stated.misfit("hidden_size", width, f"an even width for each of {heads} heads")
    return LlamaConfig(
        width=width,
        heads=heads,
        kv_heads=shared,
        head=head,
        feedforward=stated.size("intermediate_size", 4864),
        eps=stated.number("rms_norm_eps", 1e-6),
        base=stated.number("rope_theta", 10000.0),
        biased=biased,
    )
