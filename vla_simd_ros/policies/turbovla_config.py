"""TurboVLA's configuration, read from a checkpoint of either LeRobot form and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import (
    DEFAULT_MAX_TOKENS,
    TEXT_ENCODER_FOLDER,
    VISION_ENCODER_FOLDER,
    Checkpoint,
)
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.backbones import stated_beside, stated_by_name, unknown_backbone
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.bert import BertConfig, read_bert_config
from vla_simd_ros.policies.blocks.dino_config import DINOV2, DINOV3, DinoConfig, read_dino_config
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.blocks.vision_language import TrunkConfig
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    check_one_moment,
    chunk_rows,
    feedforward_activation,
    misfit,
    positive,
    renamed_cameras,
    state_feature,
    width_and_heads,
)

FORM, FORM_SO101 = "turbovla", "turbovla_so101"
FORMS = (FORM, FORM_SO101)
VISION, TEXT = "model.vision_encoder.", "model.language_encoder."
HIDDEN_STATE = "vision_hidden_state"
AFTER_NORM, BEFORE_NORM = "after_norm", "before_norm"
_LEAST_TOKENS = 2
# What the form "turbovla" builds where it may not download anything: a DINOv2 of a ViT-B/16's sizes.
_FALLBACK = {"model_type": DINOV2, "patch_size": 16}


@dataclass(frozen=True)
class TurboVlaConfig:
    """Features, backbones and sizes; ``state`` is None where the policy takes none.

    ``vision_after_norm`` tells which hidden state of the vision encoder is taken: its last one after the
    final norm, or before it.
    """

    form: str
    cameras: dict[str, Feature]
    state: Feature | None
    action: Feature
    image_size: int
    vision: DinoConfig
    vision_after_norm: bool
    text: BertConfig
    max_tokens: int
    trunk: TrunkConfig
    chunk_size: int
    n_action_steps: int
    temporal_ensemble_coeff: float | None

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and the longest instruction."""
        return PolicySpec(
            type=self.form,
            cameras=camera_specs(self.cameras),
            state_dim=self.state.channels if self.state else 0,
            env_state_dim=0,
            action_dim=self.action.channels,
            chunk_size=self.chunk_size,
            n_action_steps=self.n_action_steps,
            uses_instruction=True,
            max_instruction_tokens=self.max_tokens,
            temporal_ensemble_coeff=self.temporal_ensemble_coeff,
            camera_features=renamed_cameras(self.cameras),
        )


def read_turbovla_config(checkpoint: Checkpoint) -> TurboVlaConfig:
    """Read config.json and the backbones' configurations. Raises CheckpointError."""
    chunk_size, steps = chunk_rows(checkpoint, 12, executed=12)
    hidden_state = checkpoint.option(HIDDEN_STATE, str, AFTER_NORM)
    if hidden_state not in (AFTER_NORM, BEFORE_NORM):
        raise misfit(checkpoint, HIDDEN_STATE, f"'{hidden_state}'", f"'{AFTER_NORM}' or '{BEFORE_NORM}'")
    config = TurboVlaConfig(
        form=checkpoint.type,
        cameras=checkpoint.cameras,
        state=state_feature(checkpoint),
        action=action_feature(checkpoint),
        image_size=positive(checkpoint, "image_size", 224),
        vision=read_dino_config(_vision(checkpoint)),
        vision_after_norm=hidden_state == AFTER_NORM,
        text=read_bert_config(_text(checkpoint)),
        max_tokens=positive(checkpoint, "max_language_tokens", DEFAULT_MAX_TOKENS),
        trunk=_trunk(checkpoint),
        chunk_size=chunk_size,
        n_action_steps=steps,
        temporal_ensemble_coeff=_coefficient(checkpoint),
    )
    _check(checkpoint, config)
    return config


def _trunk(checkpoint: Checkpoint) -> TrunkConfig:
    width, heads = width_and_heads(checkpoint, 256, 8)
    return TrunkConfig(
        width=width,
        heads=heads,
        feedforward=positive(checkpoint, "dim_feedforward", 1024),
        activation=feedforward_activation(checkpoint),
        fusion_layers=positive(checkpoint, "n_fusion_layers", 6),
        decoder_layers=positive(checkpoint, "n_decoder_layers", 4),
    )


def _coefficient(checkpoint: Checkpoint) -> float | None:
    """Only the SO-101 form blends chunks."""
    name = "temporal_ensemble_coeff"
    blends = checkpoint.type == FORM_SO101 and checkpoint.config.get(name) is not None
    return float(checkpoint.option(name, float)) if blends else None


def _vision(checkpoint: Checkpoint) -> Stated:
    """The configuration of the vision encoder whose weights are stored."""
    stored = DINOV2 if f"{VISION}embeddings.position_embeddings" in checkpoint.weights else DINOV3
    stated = stated_beside(checkpoint, VISION_ENCODER_FOLDER) or stated_by_name(checkpoint, "vision_backbone")
    if stored == DINOV2 and _fell_back(checkpoint, stated):
        side = checkpoint.option("image_size", int, 224)
        return Stated({**_FALLBACK, "image_size": side}, "vision encoder built without a download")
    if stated is None:
        raise unknown_backbone(checkpoint, "vision_backbone", VISION_ENCODER_FOLDER)
    if stated.model_type in (DINOV2, DINOV3) and stated.model_type != stored:
        raise CheckpointError(
            f"{checkpoint.weights.path}: holds the weights of a vision encoder '{stored}', "
            f"{stated.where} is of one '{stated.model_type}'"
        )
    return stated


def _fell_back(checkpoint: Checkpoint, stated: Stated | None) -> bool:
    """Whether the DINOv2 that is stored stands in for a backbone that could not be had when it was built."""
    if checkpoint.type != FORM or checkpoint.option("load_pretrained_backbones", bool, True):
        return False
    if stated_beside(checkpoint, VISION_ENCODER_FOLDER) is not None:
        return False
    return stated is None or stated.model_type != DINOV2


def _text(checkpoint: Checkpoint) -> Stated:
    stated = stated_beside(checkpoint, TEXT_ENCODER_FOLDER) or stated_by_name(checkpoint, "language_backbone")
    if stated is None:
        raise unknown_backbone(checkpoint, "language_backbone", TEXT_ENCODER_FOLDER)
    return stated


def _check(checkpoint: Checkpoint, config: TurboVlaConfig) -> None:
    if not config.cameras:
        raise misfit(checkpoint, "input_features", list(checkpoint.features_in), "a camera")
    check_cameras(checkpoint)
    if config.image_size % config.vision.patch:
        expected = f"a multiple of the vision encoder's patches ({config.vision.patch})"
        raise misfit(checkpoint, "image_size", config.image_size, expected)
    if not _LEAST_TOKENS <= config.max_tokens <= config.text.positions:
        expected = f"{_LEAST_TOKENS} to {config.text.positions} (positions of the text encoder)"
        raise misfit(checkpoint, "max_language_tokens", config.max_tokens, expected)
    if config.temporal_ensemble_coeff is not None and config.n_action_steps > 1:
        expected = "1 with temporal_ensemble_coeff, which blends a new chunk in every step"
        raise misfit(checkpoint, "n_action_steps", config.n_action_steps, expected)
    check_one_moment(checkpoint)
