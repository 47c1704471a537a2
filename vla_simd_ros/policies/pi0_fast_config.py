"""The configuration of pi0-FAST, read from a checkpoint and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.checkpoint import CONFIG, Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.blocks.siglip import SiglipConfig
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    check_one_moment,
    chunk_rows,
    misfit,
    positive,
    renamed_cameras,
    state_feature,
)

_PREFIXES = ("model.paligemma_with_expert.paligemma.", "paligemma_with_expert.paligemma.")
VISION = "model.vision_tower.vision_model."
PROJECTOR = "model.multi_modal_projector."
TEXT = "model.language_model."
HEAD = "lm_head.weight"
# What weights do not tell of PaliGemma's networks.
_HEAD_WIDTH = 256
_VISION_HEADS = 16
_TEXT_EPS = _VISION_EPS = 1e-6


@dataclass(frozen=True)
class Pi0FastConfig:
    """Features and sizes; weights are named ``prefix`` and so on. ``table`` is the name of the word
    embeddings, which score words too. Images are fitted into ``image_size``, (height, width). ``rows`` of
    actions are spelled in up to ``max_action_tokens``; ``skipped`` words at the end of the vocabulary stand
    for none. ``begins_with_words``: an answer has to begin with those that say that it is one."""

    cameras: dict[str, Feature]
    state: Feature
    action: Feature
    rows: int
    max_tokens: int
    max_action_tokens: int
    skipped: int
    begins_with_words: bool
    image_size: tuple[int, int]
    prefix: str
    table: str
    vision: SiglipConfig
    text: LlamaConfig
    layers: int
    vocabulary: int

    @property
    def patches(self) -> int:
        """Image tokens of a camera."""
        height, width = self.image_size
        return (height // self.vision.patch) * (width // self.vision.patch)

    @property
    def spec(self) -> PolicySpec:
        """The specification of a policy with this configuration."""
        return PolicySpec(
            type="pi0_fast",
            cameras=camera_specs(self.cameras),
            state_dim=self.state.channels,
            env_state_dim=0,
            action_dim=self.action.channels,
            chunk_size=self.rows,
            n_action_steps=self.rows,
            uses_instruction=True,
            max_instruction_tokens=self.max_tokens,
            camera_features=renamed_cameras(self.cameras),
        )


def read_pi0_fast_config(checkpoint: Checkpoint) -> Pi0FastConfig:
    """Read config.json. Raises CheckpointError."""
    state = state_feature(checkpoint)
    if state is None or not checkpoint.cameras:
        raise misfit(
            checkpoint, "input_features", list(checkpoint.features_in), "a camera, and the robot's state"
        )
    if checkpoint.processors.prompt is None:
        raise CheckpointError(
            f"{checkpoint.folder}: the preprocessor writes no prompt with the state, expected it to"
        )
    _check_supported(checkpoint)
    # As in LeRobot, the chunk that tokens spell is as long as what is executed of it.
    _, rows = chunk_rows(checkpoint, 50)
    sizes = _Sizes(checkpoint)
    config = Pi0FastConfig(
        cameras=checkpoint.cameras,
        state=state,
        action=action_feature(checkpoint),
        rows=rows,
        max_tokens=positive(checkpoint, "tokenizer_max_length", 200),
        max_action_tokens=positive(checkpoint, "max_decoding_steps", 256),
        skipped=checkpoint.option("fast_skip_tokens", int, 128),
        begins_with_words=checkpoint.option("validate_action_token_prefix", bool, True),
        image_size=_image_size(checkpoint),
        prefix=sizes.prefix,
        table=sizes.table,
        vision=sizes.vision(),
        text=sizes.text(),
        layers=sizes.count(f"{TEXT}layers."),
        vocabulary=sizes.shape(sizes.table, 2)[0],
    )
    _check(checkpoint, config)
    return config


def _check_supported(checkpoint: Checkpoint) -> None:
    check_cameras(checkpoint)
    check_one_moment(checkpoint)
    if checkpoint.option("use_relative_actions", bool, False):
        raise misfit(checkpoint, "use_relative_actions", "true", "false")
    temperature = float(checkpoint.option("temperature", float, 0.0))
    if temperature:
        raise misfit(checkpoint, "temperature", temperature, "0, the most likely tokens")


def _check(checkpoint: Checkpoint, config: Pi0FastConfig) -> None:
    side = config.vision.patch * config.vision.grid
    if config.image_size != (side, side):
        raise misfit(
            checkpoint, "image_resolution", list(config.image_size), f"{[side, side]}, as the tower has"
        )
    if not 0 <= config.skipped < config.vocabulary:
        raise misfit(checkpoint, "fast_skip_tokens", config.skipped, f"0 to {config.vocabulary - 1}")


def _image_size(checkpoint: Checkpoint) -> tuple[int, int]:
    size = checkpoint.option("image_resolution", list, [224, 224])
    if len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        raise misfit(checkpoint, "image_resolution", size, "[height, width]")
    height, width = size
    return height, width


class _Sizes:
    """Sizes that the stored tensors have; widths of heads are in the optional field ``paligemma`` of
    config.json, and otherwise PaliGemma's."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._weights = checkpoint.weights
        self._names = frozenset(checkpoint.weights)
        first, *_ = _PREFIXES
        self.prefix = next((p for p in _PREFIXES if any(name.startswith(p) for name in self._names)), first)
        # Both are one table; where both are stored, LeRobot loads the head's.
        self.table = HEAD if self.prefix + HEAD in self._names else f"{TEXT}embed_tokens.weight"
        self._where = f"{checkpoint.folder / CONFIG}: paligemma"
        self._stated = checkpoint.option("paligemma", dict, {})

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """The shape of a tensor of so many dimensions."""
        shape = self._weights.shape(self.prefix + name)
        if len(shape) != rank or not all(shape):
            raise CheckpointError(
                f"{self._weights.path}: tensor '{self.prefix}{name}' has shape {list(shape)}, expected "
                f"{rank} dimensions of 1 or more"
            )
        return shape

    def count(self, start: str) -> int:
        """How many layers are stored under names that begin so."""
        start = self.prefix + start
        return len({name[len(start) :].split(".", 1)[0] for name in self._names if name.startswith(start)})

    def vision(self) -> SiglipConfig:
        """The vision tower."""
        stated = self._part("vision_config")
        width, _, patch, _ = self.shape(f"{VISION}embeddings.patch_embedding.weight", 4)
        positions, _ = self.shape(f"{VISION}embeddings.position_embedding.weight", 2)
        return SiglipConfig(
            width=width,
            heads=Stated({"hidden_size": width, **stated.fields}, stated.where).heads(width, _VISION_HEADS),
            feedforward=self.shape(f"{VISION}encoder.layers.0.mlp.fc1.weight", 2)[0],
            layers=self.count(f"{VISION}encoder.layers."),
            patch=patch,
            grid=math.isqrt(positions),
            eps=_VISION_EPS,
            half_positions=False,
        )

    def text(self) -> LlamaConfig:
        """The language model: a Gemma."""
        stated = self._part("text_config")
        queries, width = self.shape(f"{TEXT}layers.0.self_attn.q_proj.weight", 2)
        keys, _ = self.shape(f"{TEXT}layers.0.self_attn.k_proj.weight", 2)
        head = stated.size("head_dim", _HEAD_WIDTH)
        if queries % head or keys % head or queries % keys or head % 2:
            raise stated.misfit(
                "head_dim", head, f"an even divisor of {queries} (queries) and of {keys} (keys)"
            )
        return LlamaConfig(
            width=width,
            heads=queries // head,
            kv_heads=keys // head,
            head=head,
            feedforward=self.shape(f"{TEXT}layers.0.mlp.gate_proj.weight", 2)[0],
            eps=_TEXT_EPS,
            activation="gelu_tanh",
            gains_less_one=True,
        )

    def _part(self, name: str) -> Stated:
        fields = json_file.field({name: {}, **self._stated}, name, dict, self._where)
        return Stated(fields, f"{self._where}: {name}")
