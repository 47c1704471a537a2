"""The sizes of SmolVLA's networks.

They are those of the stored tensors. What shapes do not tell (the width of an attention head, epsilons) is in
the config.json of the vision-language model's own folder, if that is here, and otherwise as in the SmolVLM2
that the policy is made from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.checkpoint import CONFIG, Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.blocks.siglip import SiglipConfig
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.config_fields import misfit

BODY = "model.vlm_with_expert."
VISION = "vlm.model.vision_model."
CONNECTOR = "vlm.model.connector.modality_projection.proj.weight"
TEXT = "vlm.model.text_model."
EXPERT = "lm_expert."
# Of SmolVLM2.
_HEAD = 64
_TEXT_EPS = 1e-5
_VISION_EPS = 1e-6
# Of the transformers library, where a config.json does not say.
_TEXT_HEADS = 32
_VISION_HEADS = 16
_TEXT_EPS_UNSTATED = 1e-6


class Sizes:
    """The sizes of one checkpoint's networks. All raise CheckpointError for what does not fit together."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        folder = checkpoint.named_folder("vlm_model_name")
        self._known = folder is not None and (folder / CONFIG).is_file()
        self._where = str(checkpoint.folder if folder is None else folder / CONFIG)
        self._stated: Mapping[str, Any] = (
            json_file.read_json_object(folder / CONFIG) if folder is not None and self._known else {}
        )

    @property
    def vocabulary(self) -> int:
        """Rows of the table of word embeddings."""
        return self._shape(f"{TEXT}embed_tokens.weight", 2)[0]

    @property
    def text_layers(self) -> int:
        """Layers of the language model that are stored."""
        return self._layers(f"{TEXT}layers")

    def vision(self) -> SiglipConfig:
        """The vision tower."""
        stated = self._part("vision_config")
        width, _, patch, _ = self._shape(f"{VISION}embeddings.patch_embedding.weight", 4)
        positions, _ = self._shape(f"{VISION}embeddings.position_embedding.weight", 2)
        feedforward, _ = self._shape(f"{VISION}encoder.layers.0.mlp.fc1.weight", 2)
        return SiglipConfig(
            width=width,
            heads=stated.heads(width, _VISION_HEADS if self._known else max(width // _HEAD, 1)),
            feedforward=feedforward,
            layers=self._layers(f"{VISION}encoder.layers"),
            patch=patch,
            grid=math.isqrt(positions),
            eps=stated.number("layer_norm_eps", _VISION_EPS),
            # Where the policy's trainer loads the model's own weights, it keeps them in bfloat16.
            half_positions=self._checkpoint.option("load_vlm_weights", bool, False),
        )

    def shuffle(self, vision_width: int) -> int:
        """So many patches, squared, make an image token."""
        _, inputs = self._shape(CONNECTOR, 2)
        return math.isqrt(inputs // vision_width)

    def text(self) -> LlamaConfig:
        """The language model."""
        stated = self._part("text_config")
        queries, width = self._shape(f"{TEXT}layers.0.self_attn.q_proj.weight", 2)
        keys, _ = self._shape(f"{TEXT}layers.0.self_attn.k_proj.weight", 2)
        feedforward, _ = self._shape(f"{TEXT}layers.0.mlp.gate_proj.weight", 2)
        default = width // stated.size("num_attention_heads", _TEXT_HEADS) if self._known else _HEAD
        head = stated.size("head_dim", default)
        if queries % head or keys % head or queries % keys or head % 2:
            expected = f"an even divisor of {queries} (queries) and of {keys} (keys)"
            raise stated.misfit("head_dim", head, expected)
        eps = stated.number("rms_norm_eps", _TEXT_EPS_UNSTATED if self._known else _TEXT_EPS)
        return LlamaConfig(width, queries // head, keys // head, head, feedforward, eps)

    def expert(self, text: LlamaConfig) -> LlamaConfig:
        """The expert, whose heads are those of the language model."""
        name = "expert_width_multiplier"
        multiplier = float(self._checkpoint.option(name, float, 0.75))
        width = int(text.width * multiplier)
        if width < 2 or width % 2:
            expected = f"a share of {text.width} that gives an even width"
            raise misfit(self._checkpoint, name, multiplier, expected)
        feedforward, _ = self._shape(f"{EXPERT}layers.0.mlp.gate_proj.weight", 2)
        return LlamaConfig(width, text.heads, text.kv_heads, text.head, feedforward, text.eps)

    def _layers(self, prefix: str) -> int:
        """How many layers are stored under ``prefix``."""
        start = f"{BODY}{prefix}."
        names = (name[len(start) :] for name in self._checkpoint.tensors if name.startswith(start))
        return len({name.split(".", 1)[0] for name in names})

    def _shape(self, name: str, rank: int) -> tuple[int, ...]:
        weights = self._checkpoint.weights
        shape = weights.shape(BODY + name)
        if len(shape) != rank or not all(shape):
            raise CheckpointError(
                f"{weights.path}: tensor '{BODY}{name}' has shape {list(shape)}, "
                f"expected {rank} dimensions of 1 or more"
            )
        return shape

    def _part(self, name: str) -> Stated:
        fields = json_file.field({name: {}, **self._stated}, name, dict, self._where)
        return Stated(fields, f"{self._where}: {name}")
