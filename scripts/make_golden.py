"""Writes the golden files: small random policies, raw observations, and the references' actions.

Run in the reference environment (scripts/make_reference_env.sh):  DIR/bin/python scripts/make_golden.py

Each file of test/golden holds the recipe of its checkpoint (`vla_simd make-checkpoint` makes it again,
bit for bit, from the seed), the observations, and the reference's actions in float32 and float64.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.references import make_reference, references_for

FOLDER = Path(__file__).parent.parent / "test" / "golden"
OBSERVATIONS = 2
MOST_BYTES = 300_000

TWO = (Camera("front", 64, 96), Camera("wrist", 64, 96))
# Of different sizes, with as many pixels each.
THREE = (Camera("front", 64, 96), Camera("left", 96, 64), Camera("wrist", 48, 128))
SMALL = {
    "dim_model": 32,
    "heads": 4,
    "feedforward": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "chunk_size": 10,
}
TEXT = {
    "text_config.d_model": 48,
    "text_config.d_kv": 8,
    "text_config.d_ff": 64,
    "text_config.num_layers": 2,
    "text_config.num_heads": 4,
    "text_config.vocab_size": 640,
}
SPELLED = {**{name: size for name, size in SMALL.items() if name != "decoder_layers"}, "chunk_size": 4}
TOKENS = {
    "backbone_width": 16,
    "token_width": 48,
    "n_token_layers": 2,
    "token_heads": 4,
    "token_kv_heads": 4,
    "token_feedforward": 64,
    "action_bins": 32,
}
VLM = {
    "resize_imgs_with_padding": [64, 64],
    "num_vlm_layers": 4,
    "expert_width_multiplier": 0.5,
    "vlm.scale_factor": 2,
    "vlm.text_config.hidden_size": 48,
    "vlm.text_config.intermediate_size": 64,
    "vlm.text_config.num_attention_heads": 6,
    "vlm.text_config.num_key_value_heads": 2,
    "vlm.text_config.head_dim": 8,
    "vlm.text_config.vocab_size": 600,
    "vlm.vision_config.hidden_size": 24,
    "vlm.vision_config.intermediate_size": 40,
    "vlm.vision_config.num_hidden_layers": 2,
    "vlm.vision_config.num_attention_heads": 3,
    "vlm.vision_config.image_size": 64,
    "vlm.vision_config.patch_size": 8,
}
OCTO_SIZES = {"dim_model": 48, "heads": 4, "feedforward": 96, "encoder_layers": 3, "chunk_size": 4}
OCTO = {
    **TEXT,
    "stem_channels": [32, 32, 64, 32],
    "stem_width": 40,
    "time_dim": 16,
    "head_width": 64,
    "head_blocks": 2,
}
DENOISING = {
    "down_dims": [32, 64],
    "kernel_size": 3,
    "horizon": 16,
    "diffusion_step_embed_dim": 16,
    "spatial_softmax_num_keypoints": 6,
    "num_train_timesteps": 40,
}
RANGES = {
    "normalization_mapping.STATE": "MIN_MAX",
    "normalization_mapping.ACTION": "QUANTILES",
    "normalization_mapping.VISUAL": "IDENTITY",
}
# A tokenizer's pieces and a vision encoder's layers, as few and as narrow as they can be told apart.
BACKBONES = {
    "image_size": 64,
    "vision_config.hidden_size": 48,
    "vision_config.num_hidden_layers": 2,
    "vision_config.num_attention_heads": 3,
    "text_config.hidden_size": 32,
    "text_config.num_hidden_layers": 2,
    "text_config.num_attention_heads": 2,
    "text_config.intermediate_size": 48,
    "text_config.vocab_size": 640,
    "text_config.max_position_embeddings": 40,
}
DINOV3 = {**BACKBONES, "vision_config.intermediate_size": 80}
DINOV2 = {**BACKBONES, "vision_config.mlp_ratio": 2}
DRIVING_SIZES = {
    "dim_model": 48,
    "heads": 4,
    "feedforward": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "chunk_size": 6,
}
DRIVING = {
    "tokenizer_max_length": 12,
    "vision_config.hidden_size": 48,
    "vision_config.num_attention_heads": 4,
    "vision_config.intermediate_size": 72,
    "vision_config.patch_size": 8,
    "vision_config.window_size": 4,
    "vision_config.global_every": 2,
    "query_config.hidden_size": 32,
    "query_config.num_hidden_layers": 2,
    "query_config.num_attention_heads": 4,
    "query_config.intermediate_size": 48,
    "query_config.num_queries": 6,
    "text_config.vocab_size": 600,
}
TOWERS = {
    "image_sizes": [28, 28],
    "timm_model_args.featurizer.embed_dim": 24,
    "timm_model_args.featurizer.num_heads": 3,
    "timm_model_args.featurizer.patch_size": 7,
    "timm_model_args.fused_featurizer.embed_dim": 32,
    "timm_model_args.fused_featurizer.depth": 4,
    "timm_model_args.fused_featurizer.num_heads": 4,
    "timm_model_args.fused_featurizer.mlp_ratio": 2.5,
    "timm_model_args.fused_featurizer.patch_size": 7,
    "text_config.vocab_size": 704,
    "text_config.num_key_value_heads": 4,
    "n_action_bins": 32,
    "shard_bytes": 200_000,
}
PALIGEMMA = {
    "image_resolution": [28, 28],
    "paligemma.vision_config.hidden_size": 24,
    "paligemma.vision_config.intermediate_size": 40,
    "paligemma.vision_config.num_attention_heads": 3,
    "paligemma.vision_config.patch_size": 7,
    "paligemma.text_config.head_dim": 16,
    "paligemma.text_config.vocab_size": 800,
    "fast_words": 200,
    "fast_skip_tokens": 16,
    "max_decoding_steps": 24,
    "tokenizer_max_length": 80,
}
TOWER_SIZES = {"dim_model": 48, "heads": 4, "feedforward": 80, "encoder_layers": 3, "decoder_layers": 2}
ARM: dict[str, Any] = {"state_dim": 0, "action_dim": 7, "sizes": TOWER_SIZES}
VEHICLE: dict[str, Any] = {"state_dim": 8, "action_dim": 4, "sizes": DRIVING_SIZES}


@dataclass(frozen=True)
class Case:
    """A checkpoint to make, the instruction for policies that take one, the steps of those that iterate."""

    policy: str
    options: Options
    instruction: str = ""
    num_steps: int | None = None


def sized(**changes: Any) -> dict[str, Any]:
    return {**SMALL, **changes}


CASES = {
    "act_two_cameras": Case("act", Options(seed=11, cameras=TWO, sizes=SMALL)),
    "act_pre_norm": Case(
        "act",
        Options(
            seed=12,
            cameras=THREE,
            state_dim=7,
            env_state_dim=3,
            action_dim=5,
            sizes=sized(pre_norm=True, decoder_layers=3),
            settings={"feedforward_activation": "gelu"},
        ),
    ),
    "act_ranges": Case(
        "act",
        Options(seed=13, cameras=(Camera("top", 50, 70),), dtype="bf16", sizes=SMALL, settings=RANGES),
    ),
    "act_no_camera": Case("act", Options(seed=14, cameras=(), env_state_dim=9, sizes=SMALL)),
    "act_resnet50_dilated": Case(
        "act",
        Options(
            seed=15,
            cameras=(Camera("top", 48, 64),),
            sizes=sized(backbone="resnet50"),
            settings={"replace_final_stride_with_dilation": True, "use_vae": False},
        ),
    ),
    "diffusion_two_cameras": Case(
        "diffusion",
        Options(seed=31, cameras=TWO, sizes={"chunk_size": 8}, settings=DENOISING),
        num_steps=9,
    ),
    "diffusion_three_moments": Case(
        "diffusion",
        Options(
            seed=32,
            cameras=(Camera("top", 50, 70),),
            state_dim=14,
            action_dim=7,
            sizes={"chunk_size": 6},
            settings={
                **DENOISING,
                "n_obs_steps": 3,
                "crop_shape": [43, 64],
                "use_group_norm": True,
                "use_separate_rgb_encoder_per_camera": False,
                "use_film_scale_modulation": False,
                "noise_scheduler_type": "DDIM",
                "prediction_type": "sample",
                "beta_schedule": "linear",
            },
        ),
        num_steps=5,
    ),
    "diffusion_no_camera": Case(
        "diffusion",
        Options(
            seed=33,
            cameras=(),
            env_state_dim=5,
            sizes={"chunk_size": 16},
            settings={**DENOISING, "n_obs_steps": 1, "noise_scheduler_type": "DDIM", "kernel_size": 5},
        ),
        num_steps=6,
    ),
    "impact_two_cameras": Case(
        "impact",
        Options(seed=21, cameras=TWO, sizes=sized(decoder_layers=2), settings=TEXT),
        "Put the tape into the box.",
    ),
    "impact_pre_norm": Case(
        "impact",
        Options(
            seed=22,
            cameras=THREE,
            state_dim=8,
            env_state_dim=4,
            action_dim=7,
            sizes=sized(pre_norm=True, decoder_layers=3),
            settings={**TEXT, "tokenizer_max_length": 12},
        ),
        "pick up the small red cube between the two bowls and then place it carefully on the plate",
    ),
    "impact_tokens_two_cameras": Case(
        "impact_tokens",
        Options(seed=24, cameras=TWO, sizes=SPELLED, settings={**TEXT, **TOKENS}),
        "pick up the green cube",
    ),
    "impact_tokens_grouped": Case(
        "impact_tokens",
        Options(
            seed=25,
            cameras=(Camera("top", 50, 70),),
            state_dim=7,
            env_state_dim=3,
            action_dim=5,
            sizes={**SPELLED, "pre_norm": True},
            settings={**TEXT, **TOKENS, "token_kv_heads": 2, "use_film": False, "rope_theta": 500.0},
        ),
        "stop",
    ),
    "impact_no_film": Case(
        "impact",
        Options(
            seed=23,
            cameras=(Camera("top", 50, 70),),
            sizes=sized(backbone="resnet34"),
            settings={**TEXT, **RANGES, "use_film": False},
        ),
        "open the drawer",
    ),
    "turbovla_two_cameras": Case(
        "turbovla",
        Options(seed=31, cameras=TWO, sizes=sized(decoder_layers=2), settings=DINOV3),
        "Put the tape into the box.",
    ),
    "turbovla_three_cameras": Case(
        "turbovla_so101",
        Options(
            seed=32,
            cameras=THREE,
            state_dim=14,
            action_dim=14,
            sizes=sized(chunk_size=7),
            settings={
                **DINOV3,
                **RANGES,
                "max_language_tokens": 12,
                "feedforward_activation": "gelu",
                "vision_config.use_gated_mlp": True,
                "vision_config.hidden_act": "silu",
            },
        ),
        "pick up the small red cube between the two bowls and then place it carefully on the plate",
    ),
    "turbovla_before_norm": Case(
        "turbovla",
        Options(
            seed=33,
            cameras=(Camera("top", 64, 64),),
            state_dim=0,
            dtype="bf16",
            sizes=SMALL,
            settings={**DINOV3, "vision_hidden_state": "before_norm"},
        ),
        "",
    ),
    "turbovla_dinov2": Case(
        "turbovla",
        Options(
            seed=34,
            cameras=(Camera("top", 50, 70),),
            sizes=sized(backbone="dinov2"),
            settings={**DINOV2, "vision_config.image_size": 112, "normalization_mapping.VISUAL": "MEAN_STD"},
        ),
        "open the drawer",
    ),
    "octo_two_cameras": Case(
        "octo",
        Options(
            seed=61,
            cameras=(Camera("primary", 64, 80), Camera("wrist", 32, 32)),
            action_dim=7,
            sizes=OCTO_SIZES,
            settings=OCTO,
        ),
        "Put the tape into the box.",
    ),
    "octo_first_release": Case(
        "octo",
        Options(
            seed=62,
            cameras=(Camera("primary", 96, 64),),
            action_dim=5,
            sizes=OCTO_SIZES,
            settings={
                **OCTO,
                "use_correct_attention": False,
                "repeat_task_tokens": False,
                "n_readouts": 2,
                "n_obs_steps": 3,
                "patch_size": 32,
                "sees_goal": False,
                "normalization_mapping.ACTION": "QUANTILES",
            },
        ),
        "pick up the small red cube between the two bowls and then place it carefully on the plate",
    ),
    "minddrive_two_views": Case(
        "minddrive",
        Options(
            seed=71,
            cameras=TWO,
            settings={**DRIVING, "text_config.num_key_value_heads": 2, "adapter_rank": 5},
            **VEHICLE,
        ),
        "Turn left at the crossing.",
    ),
    "orion_three_views": Case(
        "orion",
        Options(
            seed=72,
            cameras=(*TWO, Camera("back", 64, 96)),
            settings={
                **DRIVING,
                "text_config.num_key_value_heads": 4,
                "vision_config.window_size": 5,
                "latent_dim": 6,
                "planner_width": 40,
                "normalization_mapping.ACTION": "MIN_MAX",
            },
            **VEHICLE,
        ),
        "follow the road to the right of the bus and stop behind the second crossing, please",
    ),
    "openvla_two_towers": Case(
        "openvla",
        Options(seed=81, cameras=(Camera("image", 48, 64),), settings=TOWERS, **ARM),
        "Put the tape into the box.",
    ),
    "openvla_one_tower": Case(
        "openvla",
        Options(
            seed=84,
            cameras=(Camera("top", 50, 71),),
            dtype="bf16",
            settings={
                **TOWERS,
                "use_fused_vision_backbone": False,
                "vision_backbone_id": "siglip-vit-so400m",
                "image_resize_strategy": "letterbox",
                "text_config.num_key_value_heads": 2,
                "timm_model_args.featurizer.mlp_ratio": 2.0,
            },
            **ARM,
        ),
        "pick up the small red cube and place it on the plate",
    ),
    "pi0_fast_two_cameras": Case(
        "pi0_fast",
        Options(
            seed=91,
            cameras=(Camera("front", 40, 56), Camera("wrist", 48, 30)),
            sizes={**TOWER_SIZES, "chunk_size": 6},
            settings=PALIGEMMA,
        ),
        "Put the tape into the box.",
    ),
    "pi0_fast_one_camera": Case(
        "pi0_fast",
        Options(
            seed=92,
            cameras=(Camera("top", 28, 28),),
            state_dim=7,
            action_dim=7,
            dtype="bf16",
            sizes={**TOWER_SIZES, "chunk_size": 9},
            settings={
                **PALIGEMMA,
                "paligemma.text_config.num_key_value_heads": 2,
                "n_action_steps": 8,
                "fast_skip_tokens": 0,
                "normalization_mapping.STATE": "QUANTILES",
                "normalization_mapping.ACTION": "QUANTILES",
            },
        ),
        "pick_up the small red cube\nand place it on the plate",
    ),
    "smolvla_two_cameras": Case(
        "smolvla",
        Options(seed=51, cameras=TWO, sizes={"chunk_size": 10}, settings=VLM),
        "Put the tape into the box.",
    ),
    "smolvla_three_cameras": Case(
        "smolvla",
        Options(
            seed=52,
            cameras=THREE,
            state_dim=14,
            action_dim=14,
            dtype="bf16",
            sizes={"chunk_size": 7},
            settings={
                **VLM,
                "resize_imgs_with_padding": [48, 48],
                "self_attn_every_n_layers": 3,
                "add_image_special_tokens": True,
                "tokenizer_max_length": 9,
                "normalization_mapping.STATE": "MIN_MAX",
                "normalization_mapping.ACTION": "QUANTILES",
            },
        ),
        "pick up the small red cube and place it on the plate\n",
        num_steps=4,
    ),
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, **arrays(case))
        size = path.stat().st_size
        if size > MOST_BYTES:
            sys.exit(f"{path}: {size} bytes, expected at most {MOST_BYTES}")
        print(f"{path.name}: {size} bytes")


def arrays(case: Case) -> dict[str, Any]:
    """The content of a golden file."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "checkpoint"
        make_checkpoint(case.policy, folder, case.options)
        checkpoint = load_checkpoint(folder)
        cases = random_cases(checkpoint, OBSERVATIONS, case.options.seed, num_steps=case.num_steps)
        reference = references_for(case.policy)[0]
        content: dict[str, Any] = {}
        for dtype in (np.float32, np.float64):
            model = make_reference(reference, checkpoint, case.instruction, dtype)
            actions = [model.predict(given) for given in cases]
            content[f"actions_{np.dtype(dtype).name}"] = np.stack(actions)
    observations = [given.observation for given in cases]
    for camera in observations[0].images:
        content[f"image.{camera}"] = np.stack([o.images[camera] for o in observations])
    for key in ("state", "env_state", "valid"):
        vectors = [getattr(observation, key) for observation in observations]
        if vectors[0] is not None:
            content[key] = np.stack(vectors)
    noise = [given.noise for given in cases if given.noise is not None]
    if noise:
        content["noise"] = np.stack(noise)
    recipe: dict[str, Any] = {
        "policy": case.policy,
        "instruction": case.instruction,
        "options": asdict(case.options),
    }
    if cases[0].num_steps is not None:
        recipe["num_steps"] = cases[0].num_steps
    content["recipe"] = np.array(json.dumps(recipe))
    return content


if __name__ == "__main__":
    main()
