"""The configuration of OpenVLA, read from a published folder and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.action_statistics import ActionStatistics, read_action_statistics
from vla_simd_ros.checkpoints.checkpoint import CONFIG, Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.blocks.timm_vit import TimmVitConfig, read_timm_vit
from vla_simd_ros.policies.config_fields import camera_specs, check_cameras, misfit, positive
from vla_simd_ros.policies.openvla_images import ImageSettings, read_image_settings

BODY = "language_model.model."
HEAD = "language_model."
PROJECTOR = "projector."
_TOWERS = ("featurizer", "fused_featurizer")
_ARGUMENTS = "timm_model_args"
_MAX_TOKENS = 96
_CROP = "center_crop_area"
# Of the vision towers that timm has under these names, the one size that weights do not tell.
_HEADS = {
    "vit_large_patch14_reg4_dinov2.lvd142m": 16,
    "vit_so400m_patch14_siglip_224": 16,
    "vit_so400m_patch14_siglip_384": 16,
}


@dataclass(frozen=True)
class Tower:
    """A vision tower, the prefix of its weights, and what becomes of a frame before it."""

    prefix: str
    vit: TimmVitConfig
    images: ImageSettings


@dataclass(frozen=True, eq=False)
class OpenVlaConfig:
    """Features and sizes. The last ``bins`` of the first ``words`` tokens of ``vocabulary`` stand for
    actions. ``crop_area`` is the part of a frame that is seen, None for all of it."""

    camera: str
    cameras: dict[str, Feature]
    towers: tuple[Tower, ...]
    text: LlamaConfig
    layers: int
    vocabulary: int
    words: int
    bins: int
    max_tokens: int
    statistics: ActionStatistics
    crop_area: float | None = None

    @property
    def patches(self) -> int:
        """Image tokens."""
        return self.towers[0].vit.patches

    @property
    def spec(self) -> PolicySpec:
        """The specification of a policy with this configuration."""
        return PolicySpec(
            type="openvla",
            cameras=camera_specs(self.cameras),
            state_dim=0,
            env_state_dim=0,
            action_dim=self.statistics.width,
            chunk_size=1,
            n_action_steps=1,
            uses_instruction=True,
            max_instruction_tokens=self.max_tokens,
        )


def read_openvla_config(checkpoint: Checkpoint) -> OpenVlaConfig:
    """Read config.json. Raises CheckpointError."""
    model = checkpoint.option("llm_backbone_id", str, "llama2-7b-pure")
    if not model.startswith("llama2"):
        raise misfit(checkpoint, "llm_backbone_id", f"'{model}'", "a Llama 2, whose prompt is known")
    check_cameras(checkpoint)
    stated = Stated(checkpoint.option("text_config", dict), f"{checkpoint.folder / CONFIG}: text_config")
    vocabulary = stated.size("vocab_size", 32064)
    padding = checkpoint.option("pad_to_multiple_of", int, 64)
    bins = positive(checkpoint, "n_action_bins", 256)
    if not 0 <= padding < vocabulary or bins >= vocabulary - padding or bins < 2:
        raise misfit(
            checkpoint,
            "n_action_bins",
            bins,
            f"2 or more, and fewer than text_config.vocab_size ({vocabulary}) less pad_to_multiple_of "
            f"({padding})",
        )
    return OpenVlaConfig(
        camera=next(iter(checkpoint.cameras)),
        cameras=checkpoint.cameras,
        towers=_towers(checkpoint),
        text=_text(stated),
        layers=stated.size("num_hidden_layers", 32),
        vocabulary=vocabulary,
        words=vocabulary - padding,
        bins=bins,
        max_tokens=positive(checkpoint, "max_language_tokens", _MAX_TOKENS),
        statistics=read_action_statistics(checkpoint.folder, checkpoint.config),
        crop_area=read_crop_area(checkpoint),
    )


def read_crop_area(checkpoint: Checkpoint) -> float | None:
    """The part of a frame that is seen. Raises CheckpointError."""
    if checkpoint.config.get(_CROP) is None:
        return None
    area = float(checkpoint.option(_CROP, float))
    if not 0 < area <= 1:
        raise misfit(checkpoint, _CROP, area, "a part of a frame's area, above 0 and up to 1")
    return area


def _text(stated: Stated) -> LlamaConfig:
    """Sizes at the transformers library's defaults where they are not stated: those of Llama 2 with 7 B."""
    width = stated.size("hidden_size", 4096)
    heads = stated.heads(width, 32)
    kv_heads = stated.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise stated.misfit("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
    stated.choice("hidden_act", "silu", ("silu",))
    if stated.fields.get("rope_scaling") is not None:
        raise stated.misfit("rope_scaling", stated.fields["rope_scaling"], "none")
    return LlamaConfig(
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head=width // heads,
        feedforward=stated.size("intermediate_size", 11008),
        eps=stated.number("rms_norm_eps", 1e-6),
        base=stated.number("rope_theta", 10000.0),
    )


def _towers(checkpoint: Checkpoint) -> tuple[Tower, ...]:
    """DINOv2 and SigLIP, or SigLIP alone."""
    fused = checkpoint.option("use_fused_vision_backbone", bool, True)
    names = _TOWERS if fused else _TOWERS[:1]
    models = checkpoint.option("timm_model_ids", list)
    if len(models) != len(names):
        raise misfit(checkpoint, "timm_model_ids", models, f"{len(names)} vision towers")
    settings = read_image_settings(checkpoint, len(names))
    stored = frozenset(checkpoint.weights)
    towers = []
    for name, model, images in zip(names, models, settings, strict=True):
        prefix = f"vision_backbone.{name}."
        vit = read_timm_vit(checkpoint.weights, prefix, stored, _heads(checkpoint, name, model))
        if vit.side * vit.patch != images.side:
            raise misfit(
                checkpoint,
                "image_sizes",
                images.side,
                f"{vit.side * vit.patch}, {vit.side} patches of {vit.patch} pixels as tower '{name}' has",
            )
        towers.append(Tower(prefix, vit, images))
    if len({tower.vit.patches for tower in towers}) > 1:
        raise misfit(
            checkpoint, "image_sizes", [t.images.side for t in towers], "as many patches in both towers"
        )
    return tuple(towers)


def _heads(checkpoint: Checkpoint, name: str, model: object) -> int:
    """Attention heads of a tower: of a known model, or as the arguments for timm say, which replace its
    own."""
    where = f"{checkpoint.folder / CONFIG}: {_ARGUMENTS}"
    given = checkpoint.option(_ARGUMENTS, dict, {})
    if name in given:
        heads: int = json_file.field(json_file.field(given, name, dict, where), "num_heads", int, where)
    elif model in _HEADS:
        heads = _HEADS[str(model)]
    else:
        raise misfit(checkpoint, "timm_model_ids", f"'{model}'", f"one of {', '.join(_HEADS)}")
    if heads < 1:
        raise misfit(checkpoint, f"{_ARGUMENTS}.{name}.num_heads", heads, "1 or more")
    return heads
