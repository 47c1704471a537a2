"""TurboVLA: vision and language inform each other, layer by layer, before actions are decoded from both.

A vision transformer sees every camera and BERT reads the instruction. Their tokens, brought to one width,
go through interaction layers that update both sides from the same state of the other; queries, one for each
action of the chunk, then attend to all of them.
"""

from __future__ import annotations

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.normalization import Normalizer
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.bert import bert_encoder
from vla_simd_ros.policies.blocks.dino import Dino
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.blocks.normalization import normalized_vector, unnormalized
from vla_simd_ros.policies.blocks.vision_language import VisionLanguage
from vla_simd_ros.policies.turbovla_config import TEXT, VISION, TurboVlaConfig, read_turbovla_config
from vla_simd_ros.policies.weights import Weights

# What the vision encoder was trained on, by colour; applied after the checkpoint's own normalization.
_MEAN = np.array((0.485, 0.456, 0.406), np.float32)
_STD = np.array((0.229, 0.224, 0.225), np.float32)


class TurboVlaPolicy:
    """TurboVLA in either form of LeRobot's. Raises CheckpointError for what does not fit."""

    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._config = read_turbovla_config(checkpoint)
        self._weights = Weights(checkpoint.weights, "model.")
        self._text_weights = Weights(checkpoint.weights, TEXT)
        vision_weights = Weights(checkpoint.weights, VISION)
        prefix = _layer_prefix(checkpoint, self._config)
        self._vision = Dino(self._config.vision, vision_weights, prefix, self._config.image_size)
        self._trunk = VisionLanguage(self._config.trunk, self._weights)

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and the longest instruction."""
        return self._config.spec

    @property
    def solver(self) -> None:
        """A chunk is decoded at once."""

    def check_stored(self) -> None:
        """The text encoder's word embeddings may be used where they are stored."""
        self._text_weights.check_mapped()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        longest = self._config.max_tokens
        if tokens is None or not 1 <= tokens <= longest:
            raise GraphError(
                f"{self._config.form}: got an instruction of {tokens} tokens, expected 1 to {longest}"
            )
        b = Builder()
        text = self._text(b, tokens)
        vision = self._seen(b)
        vision, text = self._trunk.interact(b, vision, text)
        actions = self._trunk.decode(b, vision, text, self._config.chunk_size)
        with b.block("head"):
            actions = self._linear(
                b, actions, "action_decoder.action_head", self._config.action.channels, "actions"
            )
        with b.block("postprocess"):
            unnormalizer = self._checkpoint.unnormalizers[self._config.action.name]
            b.output("action", unnormalized(b, actions, unnormalizer, name="action"))
        return b.graph()

    def _text(self, b: Builder, tokens: int) -> Tensor:
        """The instruction's tokens in the common width."""
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        states = bert_encoder(b, ids, self._config.text, self._text_weights)
        with b.block("tokens"):
            return self._linear(b, states, "language_proj", self._config.trunk.width, "text")

    def _seen(self, b: Builder) -> Tensor:
        """The state's token, if there is one, and the patches of every camera."""
        parts = self._state(b)
        views = [self._view(b, camera) for camera in self._config.cameras]
        features = self._vision.patch_features(b, views, after_norm=self._config.vision_after_norm)
        for index, (camera, patches) in enumerate(zip(self._config.cameras, features, strict=True)):
            with b.block("tokens"):
                projected = self._linear(
                    b, patches, "vision_proj", self._config.trunk.width, f"image.{camera}"
                )
                place = self._places(b, patches.shape[0], index)
                parts.append(b.add(projected, place, name=f"image.{camera}.placed"))
        with b.block("tokens"):
            return b.concat(parts, axis=0, name="vision")

    def _places(self, b: Builder, patches: int, index: int) -> Tensor:
        """Where a patch is in the picture, and which camera's it is."""
        width, cameras = self._config.trunk.width, len(self._config.cameras)
        stored = self._weights.constant(b, "patch_pos_embed", 1, patches, width)
        positions = b.reshape(stored, (patches, width), name=f"positions.{index}")
        table = self._weights.constant(b, "camera_embed.weight", cameras, width)
        camera = b.slice(table, axis=0, start=index, stop=index + 1, name=f"camera.{index}")
        return b.add(positions, camera, name=f"place.{index}")

    def _view(self, b: Builder, camera: str) -> Tensor:
        """A camera's image in the size and the units of the vision encoder."""
        feature = self._config.cameras[camera]
        channels, height, width = feature.shape
        side = self._config.image_size
        with b.block("preprocess"):
            image = b.input(f"image.{camera}", (height, width, channels), DType.U8, Lifetime.QUERY)
            offset, divisor = self._image_units(self._checkpoint.normalizers[feature.name])
            # The reference resizes before it changes units; both are affine, so their order does not matter.
            x = b.normalize_image(
                image,
                b.constant(f"image.{camera}.offset", offset),
                b.constant(f"image.{camera}.divisor", divisor),
                name=f"image.{camera}",
            )
            return b.resize(x, side, side, name=f"image.{camera}.resized")

    def _image_units(self, normalizer: Normalizer) -> tuple[Array, Array]:
        """Offset and divisor of the checkpoint's normalization followed by the vision encoder's own."""
        shift = 0 if normalizer.shift is None else normalizer.shift.astype(np.float64)
        divisor = normalizer.divisor.astype(np.float64)
        offset = normalizer.offset + divisor * (_MEAN - shift)
        made = self._weights.made
        key = normalizer.feature.name
        return (
            made(("offset", key), lambda: offset.astype(np.float32)),
            made(("divisor", key), lambda: (divisor * _STD).astype(np.float32)),
        )

    def _state(self, b: Builder) -> list[Tensor]:
        """The token of the robot's state."""
        feature = self._config.state
        if feature is None:
            return []
        with b.block("preprocess"):
            given = b.input("state", (1, feature.channels), DType.F32, Lifetime.QUERY)
            x = normalized_vector(b, given, self._checkpoint.normalizers[feature.name], name="state")
        with b.block("tokens"):
            width = self._config.trunk.width
            stored = self._weights.constant(b, "state_embed", 1, 1, width)
            embedding = b.reshape(stored, (1, width), name="state.embedding")
            token = self._linear(b, x, "state_proj", width, "state.projected")
            return [b.add(token, embedding, name="state")]

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int, name: str) -> Tensor:
        return linear(b, x, self._weights, module, outputs, name=name)


def _layer_prefix(checkpoint: Checkpoint, config: TurboVlaConfig) -> str:
    """What stands before the number of a layer of the vision encoder in its weights' names."""
    prefixes = config.vision.names.layer
    for prefix in prefixes:
        if f"{VISION}{prefix}0.norm1.weight" in checkpoint.weights:
            return prefix
    tried = " or ".join(f"'{VISION}{prefix}0.norm1.weight'" for prefix in prefixes)
    raise CheckpointError(
        f"{checkpoint.weights.path}: no tensor {tried}, expected one of a vision encoder's layers"
    )
