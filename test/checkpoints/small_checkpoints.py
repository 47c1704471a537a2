"""Options of checkpoints small enough to be computed in float64, and values for their inputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from small_diffusion import SETTINGS as DIFFUSION
from small_diffusion import SIZES as DIFFUSION_SIZES

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.base import PolicySpec

CAMERAS = (Camera("front", 40, 56), Camera("wrist", 33, 47))
SAME_SIZE = (Camera("front", 40, 56), Camera("wrist", 40, 56))
SIZES: dict[str, Any] = {
    "dim_model": 32,
    "heads": 4,
    "feedforward": 48,
    "chunk_size": 5,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
TEXT: dict[str, Any] = {
    "text_config.d_model": 24,
    "text_config.d_kv": 8,
    "text_config.d_ff": 40,
    "text_config.num_layers": 2,
    "text_config.num_heads": 4,
    "tokenizer_max_length": 8,
}
BERT: dict[str, Any] = {
    "text_config.model_type": "bert",
    "text_config.hidden_size": 24,
    "text_config.num_hidden_layers": 2,
    "text_config.num_attention_heads": 3,
    "text_config.intermediate_size": 40,
    "text_config.vocab_size": 900,
    "text_config.max_position_embeddings": 12,
    "tokenizer_max_length": 8,
}
WITH_BERT: dict[str, Any] = {
    "settings": BERT,
    "without": tuple(name for name in TEXT if name.startswith("text_config.")),
}
TOKEN_SIZES = {name: size for name, size in SIZES.items() if name != "decoder_layers"}
TOKENS: dict[str, Any] = {
    "backbone_width": 8,
    "token_width": 24,
    "n_token_layers": 2,
    "token_heads": 3,
    "token_kv_heads": 1,
    "token_feedforward": 40,
    "action_bins": 20,
}
SMOLVLA: dict[str, Any] = {
    "num_vlm_layers": 4,
    "resize_imgs_with_padding": [32, 32],
    "tokenizer_max_length": 8,
    "max_state_dim": 8,
    "max_action_dim": 8,
    "num_steps": 3,
    "expert_width_multiplier": 0.5,
    "vlm.scale_factor": 2,
    "vlm.text_config.hidden_size": 40,
    "vlm.text_config.intermediate_size": 48,
    "vlm.text_config.num_attention_heads": 4,
    "vlm.text_config.num_key_value_heads": 2,
    "vlm.text_config.head_dim": 8,
    "vlm.text_config.vocab_size": 600,
    "vlm.vision_config.hidden_size": 24,
    "vlm.vision_config.intermediate_size": 40,
    "vlm.vision_config.num_hidden_layers": 2,
    "vlm.vision_config.num_attention_heads": 3,
    "vlm.vision_config.image_size": 32,
    "vlm.vision_config.patch_size": 8,
}
TURBOVLA: dict[str, Any] = {
    "image_size": 48,
    "max_language_tokens": 8,
    "vision_config.hidden_size": 32,
    "vision_config.num_hidden_layers": 2,
    "vision_config.num_attention_heads": 2,
    "vision_config.intermediate_size": 56,
    "text_config.hidden_size": 24,
    "text_config.num_hidden_layers": 2,
    "text_config.num_attention_heads": 3,
    "text_config.intermediate_size": 40,
}
OCTO_CAMERAS = (Camera("primary", 48, 64), Camera("wrist", 32, 32))
OCTO_SIZES = {"dim_model": 48, "heads": 4, "feedforward": 96, "encoder_layers": 3, "chunk_size": 4}
OCTO: dict[str, Any] = {
    **TEXT,
    "stem_channels": [32, 32, 64, 64],
    "stem_width": 40,
    "time_dim": 16,
    "head_width": 64,
    "head_blocks": 2,
    "diffusion_steps": 6,
    "max_horizon": 4,
}
OPENVLA_SIZES = {"dim_model": 32, "heads": 4, "feedforward": 48, "encoder_layers": 3, "decoder_layers": 2}
OPENVLA: dict[str, Any] = {
    "image_sizes": [16, 16],
    "timm_model_args.featurizer.embed_dim": 24,
    "timm_model_args.featurizer.num_heads": 3,
    "timm_model_args.featurizer.patch_size": 4,
    "timm_model_args.fused_featurizer.embed_dim": 16,
    "timm_model_args.fused_featurizer.depth": 2,
    "timm_model_args.fused_featurizer.num_heads": 2,
    "timm_model_args.fused_featurizer.patch_size": 4,
    "text_config.vocab_size": 704,
    "text_config.num_key_value_heads": 2,
    "n_action_bins": 32,
    "max_language_tokens": 40,
    "shard_bytes": 60_000,
}
PI0_FAST_SIZES = {
    "dim_model": 32,
    "heads": 4,
    "feedforward": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "chunk_size": 5,
}
PI0_FAST: dict[str, Any] = {
    "image_resolution": [16, 16],
    "paligemma.vision_config.hidden_size": 16,
    "paligemma.vision_config.intermediate_size": 24,
    "paligemma.vision_config.num_attention_heads": 2,
    "paligemma.vision_config.patch_size": 4,
    "paligemma.text_config.head_dim": 8,
    "paligemma.text_config.vocab_size": 800,
    "fast_words": 200,
    "fast_skip_tokens": 16,
    "max_decoding_steps": 12,
    "tokenizer_max_length": 60,
}
# Views of 6 x 10 patches in windows of 4: those at the borders are smaller.
VIEWS = (Camera("front", 48, 80), Camera("back", 48, 80))
DRIVING: dict[str, Any] = {
    "tokenizer_max_length": 8,
    "vision_config.hidden_size": 32,
    "vision_config.num_attention_heads": 4,
    "vision_config.intermediate_size": 40,
    "vision_config.patch_size": 8,
    "vision_config.window_size": 4,
    "query_config.hidden_size": 32,
    "query_config.num_hidden_layers": 2,
    "query_config.num_attention_heads": 4,
    "query_config.intermediate_size": 48,
    "query_config.num_queries": 6,
    "text_config.num_key_value_heads": 2,
    "text_config.vocab_size": 600,
}
DRIVING_SIZES = {**SIZES, "encoder_layers": 3, "decoder_layers": 3}
ROBOTS = {
    "minddrive": {"state_dim": 8, "action_dim": 4},
    "orion": {"state_dim": 8, "action_dim": 4},
    "openvla": {"state_dim": 0, "action_dim": 7},
}
# Cameras, sizes and settings of a policy.
_SMALL: dict[str, tuple[tuple[Camera, ...], dict[str, Any], dict[str, Any]]] = {
    "act": (CAMERAS, SIZES, {}),
    "diffusion": (SAME_SIZE, DIFFUSION_SIZES, DIFFUSION),
    "impact": (CAMERAS, SIZES, TEXT),
    "impact_tokens": (CAMERAS, TOKEN_SIZES, {**TEXT, **TOKENS}),
    "smolvla": (CAMERAS, {"chunk_size": 5}, SMOLVLA),
    "octo": (OCTO_CAMERAS, OCTO_SIZES, OCTO),
    "turbovla": (CAMERAS, SIZES, TURBOVLA),
    "turbovla_so101": (CAMERAS, SIZES, TURBOVLA),
    "minddrive": (VIEWS, DRIVING_SIZES, {**DRIVING, "adapter_rank": 3}),
    "openvla": ((Camera("image", 20, 28),), OPENVLA_SIZES, OPENVLA),
    "pi0_fast": (CAMERAS, PI0_FAST_SIZES, PI0_FAST),
    "orion": (VIEWS, DRIVING_SIZES, {**DRIVING, "latent_dim": 6, "planner_width": 24}),
}


def small_options(
    policy: str,
    sizes: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
    **changes: Any,
) -> Options:
    """Options of a small checkpoint; ``sizes`` and ``settings`` are added to the small ones, of which those
    named by ``without`` are left out."""
    cameras, small_sizes, small_settings = _SMALL[policy]
    small_settings = {name: value for name, value in small_settings.items() if name not in without}
    base = Options(
        cameras=cameras,
        sizes={**small_sizes, **(sizes or {})},
        settings={**small_settings, **(settings or {})},
        **ROBOTS.get(policy, {}),
    )
    return dataclasses.replace(base, **changes)


def with_config(checkpoint: Checkpoint, **fields: Any) -> Checkpoint:
    """The same checkpoint with some fields of config.json replaced."""
    return dataclasses.replace(checkpoint, config={**checkpoint.config, **fields})


def random_inputs(spec: PolicySpec, tokens: int = 0, seed: int = 0) -> dict[str, Array]:
    """Values for a policy's runtime inputs."""
    rng = np.random.default_rng(seed)
    steps = spec.observation_steps
    values: dict[str, Array] = {
        f"image.{name}{suffix}": rng.integers(0, 256, (camera.height, camera.width, 3), dtype=np.uint8)
        for name, camera in spec.cameras.items()
        for suffix in ([""] if steps == 1 else [f".{step}" for step in range(steps)])
    }
    for name, width in (("state", spec.state_dim), ("env_state", spec.env_state_dim)):
        if width:
            values[name] = rng.normal(size=(steps, width)).astype(np.float32)
    if spec.takes_prefix:
        values["prefix"] = rng.normal(size=(spec.chunk_size, spec.action_dim)).astype(np.float32)
        values["prefix_weights"] = rng.uniform(size=(spec.chunk_size, 1)).astype(np.float32)
    if tokens:
        values["token_ids"] = rng.integers(2, 800, tokens).astype(np.int32)
    return values
