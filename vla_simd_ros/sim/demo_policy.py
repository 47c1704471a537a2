"""The demo's policy: a checkpoint that fits the simulated robot, or a random one that is made once."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_simd_ros.cache_folder import cache_folder
from vla_simd_ros.checkpoints import Checkpoint, synthesis
from vla_simd_ros.checkpoints.features import FeatureKind
from vla_simd_ros.heartbeat import heartbeat
from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.scene import CAMERAS

SEED = 0
TRAINED = Path(__file__).parent / "demo_impact"
"""The policy that comes with this package."""
TRAINED_NOTE = "small IMPACT, trained on demonstrations of the simulated tasks: put a cube on a pad"
FULL_SIZE = ("impact", "act")
"""The policies that run in full size unless asked otherwise: a common machine is fast enough for them."""

_SMALL_PICTURE = (96, 128)
# Of policies that are not made for the cameras' usual size.
_FULL_PICTURE = {"octo": (256, 256)}
_SMALL_ENCODER = {"dim_model": 64, "heads": 4, "feedforward": 64, "encoder_layers": 1}
_SMALL_TRANSFORMER = {**_SMALL_ENCODER, "decoder_layers": 1, "chunk_size": 50}


@dataclass(frozen=True)
class Small:
    """Sizes and settings of a policy so small that it takes next to no time."""

    sizes: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


_SMALL_TURBOVLA = Small(
    {**_SMALL_TRANSFORMER, "dim_model": 32, "feedforward": 48},
    {
        "image_size": 96,
        "vision_config.hidden_size": 32,
        "vision_config.num_hidden_layers": 2,
        "vision_config.num_attention_heads": 2,
        "vision_config.intermediate_size": 64,
        "text_config.hidden_size": 32,
        "text_config.num_hidden_layers": 2,
        "text_config.num_attention_heads": 2,
        "text_config.intermediate_size": 64,
    },
)
SMALL = {
    "act": Small(_SMALL_TRANSFORMER),
    "diffusion": Small(
        {"chunk_size": 50},
        {
            "down_dims": [32, 64],
            "diffusion_step_embed_dim": 32,
            "noise_scheduler_type": "DDIM",
            "num_inference_steps": 5,
        },
    ),
    "impact": Small(
        _SMALL_TRANSFORMER,
        {
            "text_config.d_model": 32,
            "text_config.d_kv": 8,
            "text_config.d_ff": 32,
            "text_config.num_layers": 1,
            "text_config.num_heads": 2,
        },
    ),
    "impact_tokens": Small(
        {**_SMALL_ENCODER, "chunk_size": 8},
        {
            "backbone_width": 16,
            "token_width": 48,
            "n_token_layers": 2,
            "token_heads": 4,
            "token_kv_heads": 4,
            "token_feedforward": 64,
            "text_config.d_model": 32,
            "text_config.d_kv": 8,
            "text_config.d_ff": 32,
            "text_config.num_layers": 1,
            "text_config.num_heads": 2,
        },
    ),
    "octo": Small(
        {"encoder_layers": 2, "dim_model": 64, "heads": 4, "feedforward": 64, "chunk_size": 16},
        {
            "stem_channels": [32, 32, 32, 32],
            "stem_width": 64,
            "text_config.d_model": 32,
            "text_config.d_kv": 8,
            "text_config.d_ff": 32,
            "text_config.num_layers": 1,
            "text_config.num_heads": 2,
        },
    ),
    "smolvla": Small(
        {"encoder_layers": 2, "dim_model": 64, "heads": 4, "feedforward": 64},
        {
            "resize_imgs_with_padding": [128, 128],
            "num_steps": 5,
            "vlm.text_config.num_key_value_heads": 2,
            "vlm.text_config.head_dim": 16,
            "vlm.vision_config.hidden_size": 48,
            "vlm.vision_config.intermediate_size": 64,
            "vlm.vision_config.num_hidden_layers": 1,
            "vlm.vision_config.num_attention_heads": 3,
            "vlm.vision_config.image_size": 128,
        },
    ),
    "turbovla": _SMALL_TURBOVLA,
    "turbovla_so101": _SMALL_TURBOVLA,
}
POLICIES = tuple(SMALL)
"""Those of robot arms: others have no use for this robot."""


class CheckpointMismatch(ValueError):
    """A checkpoint of another robot than the simulated one; the message names what differs."""


def image_size(checkpoint: Checkpoint) -> tuple[int, int]:
    """Checks that the policy fits the robot; (width, height) of the pictures that it wants.

    Raises CheckpointMismatch for cameras or joints that the robot lacks, or cameras of different sizes.
    """
    cameras = checkpoint.cameras
    unknown = [name for name in cameras if name not in CAMERAS]
    if unknown or not cameras:
        raise CheckpointMismatch(
            f"{checkpoint.folder}: looks through cameras {', '.join(cameras) or '(none)'}; "
            f"the simulated robot has {', '.join(CAMERAS)}"
        )
    for features in (checkpoint.features_in, checkpoint.features_out):
        for feature in features.values():
            if feature.kind in (FeatureKind.STATE, FeatureKind.ACTION) and feature.shape != (
                len(JOINT_NAMES),
            ):
                raise CheckpointMismatch(
                    f"{checkpoint.folder}: {feature.name} has shape {feature.shape}, the simulated robot "
                    f"has {len(JOINT_NAMES)} joints"
                )
    sizes = {name: feature.shape[1:] for name, feature in cameras.items()}
    if len(set(sizes.values())) > 1:
        raise CheckpointMismatch(
            f"{checkpoint.folder}: pictures (height, width) are {sizes}; the simulated cameras share one size"
        )
    height, width = next(iter(sizes.values()))
    return width, height


def random_checkpoint(say: Callable[[str], None], policy: str = "impact", small: bool = False) -> Path:
    """The folder of a random checkpoint of a policy, made if this version has not made it yet.

    In full size, or so ``small`` that it takes next to no time. Progress goes to `say`, at least every five
    seconds.
    """
    size = "small" if small else "full-size"
    name = f"{policy}-small" if small else policy
    folder = cache_folder() / f"{name}-seed{SEED}-{_recipe_digest()}"
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    say(f"making a random {size} {policy} checkpoint (once) in {folder}")
    try:
        with heartbeat(lambda seconds: say(f"still making the checkpoint ({seconds:.0f} s)")):
            synthesis.make_checkpoint(policy, unfinished, _options(policy, small))
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _options(policy: str, small: bool) -> synthesis.Options:
    if not small and policy not in _FULL_PICTURE:
        return synthesis.Options(seed=SEED)
    if not small:
        size = _FULL_PICTURE[policy]
        return synthesis.Options(seed=SEED, cameras=tuple(synthesis.Camera(name, *size) for name in CAMERAS))
    cameras = tuple(synthesis.Camera(name, *_SMALL_PICTURE) for name in CAMERAS)
    made = SMALL[policy]
    return synthesis.Options(seed=SEED, cameras=cameras, sizes=made.sizes, settings=made.settings)


def _recipe_digest() -> str:
    """Changes with the code that makes the checkpoint, so that an old one is not taken for the new."""
    digest = hashlib.sha256()
    for source in sorted(Path(synthesis.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:10]
