"""pi0-FAST: a PaliGemma (SigLIP, Gemma) sees images and reads a prompt that tells the robot's state, and
spells a chunk of actions in FAST's tokens.

Images and prompt see each other, both ways, up to the mark that ends the prompt; what is spelled sees what is
before it. The step program reads that mark again, which changes nothing, so that its first pass scores the
first token.
"""

from __future__ import annotations

import math

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.decoding.cached_model import state_rows
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.causal_llama import CausalLlama, KeptTokens
from vla_simd_ros.policies.blocks.image_geometry import letterboxed
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.blocks.normalization import normalized_image, to_both_sides_of_zero
from vla_simd_ros.policies.blocks.siglip import Siglip
from vla_simd_ros.policies.pi0_fast_config import PROJECTOR, TEXT, VISION, read_pi0_fast_config
from vla_simd_ros.policies.pi0_fast_tokens import Pi0FastTokens
from vla_simd_ros.policies.weights import Weights

# What fills an image up to its square: black, after the image is scaled to [-1, 1].
_BLACK = -1.0


class Pi0FastPolicy:
    """pi0-FAST as LeRobot stores it. Raises CheckpointError for what does not fit."""

    solver = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        config = self._config = read_pi0_fast_config(checkpoint)
        self._weights, self._vision, self._projector, self._text = (
            Weights(checkpoint.weights, config.prefix + part) for part in ("", VISION, PROJECTOR, TEXT)
        )
        self._tower = Siglip(config.vision, self._vision)
        self._action_tokens = Pi0FastTokens(checkpoint, config)
        context = self._action_tokens.prefix_rows(config.max_tokens) + 1 + config.max_action_tokens
        self._stack = CausalLlama(config.text, config.layers, state_rows(context), self._text)

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and the longest prompt."""
        return self._config.spec

    @property
    def action_tokens(self) -> Pi0FastTokens:
        """How a chunk is spelled."""
        return self._action_tokens

    def check_stored(self) -> None:
        """The word embeddings may be used where they are stored."""
        self._weights.check_mapped()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for prompts of up to ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``, and passes
        of ``rows`` tokens behind them."""
        if tokens is None or not 1 <= tokens <= self._config.max_tokens:
            raise GraphError(
                f"pi0_fast: got a prompt of {tokens} tokens, expected 1 to {self._config.max_tokens}"
            )
        b = Builder()
        kept = self._stack.begin(b)
        # Those of the prompt with the longest state: how many they are is all that is of use before a query.
        b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        self._read_prefix(b, tokens, kept)
        ids = b.input("step_ids", (rows,), DType.I32, Lifetime.STEP)
        positions = b.input("step_positions", (rows,), DType.I32, Lifetime.STEP)
        x = self._stack.read(b, self._embedded(b, ids, "tokens"), positions, kept, "layers")
        with b.block("head"):
            b.output("scores", b.linear(self._stack.normed(b, x), self._table(b), name="scores"))
        return b.graph()

    def _read_prefix(self, b: Builder, tokens: int, kept: KeptTokens) -> None:
        """Images, prompt and the mark behind it, and rows for a longer prompt that nobody sees."""
        ids = b.input("prompt_ids", (tokens + 1,), DType.I32, Lifetime.QUERY)
        hidden = b.input("prompt_hidden", (tokens + 1,), DType.F32, Lifetime.QUERY)
        images = [self._image(b, camera) for camera in self._config.cameras]
        words = self._embedded(b, ids, "prompt")
        with b.block("prefix.0"):
            x = b.concat([*images, words], axis=0, name="tokens")
            rows, seen = x.shape[0], x.shape[0] - tokens - 1
            keys = b.concat([self._text.zeros(b, "seen", seen), hidden], axis=0, name="hidden")
            mask = b.add(self._text.zeros(b, "mask.rows", rows, rows), keys, name="mask")
            bias = b.reshape(mask, (1, rows, rows), name="bias")
        places = self._text.made(("positions", rows), lambda: np.arange(rows, dtype=np.int32))
        self._stack.read_at_once(b, x, b.constant("prefix.positions", places), kept, "prefix", bias)

    def _image(self, b: Builder, camera: str) -> Tensor:
        feature = self._config.cameras[camera]
        channels, height, width = feature.shape
        with b.block("preprocess"):
            image = b.input(f"image.{camera}", (height, width, channels), DType.U8, Lifetime.QUERY)
            normalizer = to_both_sides_of_zero(self._checkpoint.normalizers[feature.name])
            x = normalized_image(b, image, normalizer, name=f"image.{camera}")
            x = letterboxed(
                b, x, *self._config.image_size, _BLACK, name=f"image.{camera}.fitted", centred=True
            )
        states = self._tower.build(b, x, lambda part: f"vision.{camera}.{part}")
        with b.block(f"projector.{camera}"):
            return linear(b, states, self._projector, "linear", self._config.text.width, name="tokens")

    def _embedded(self, b: Builder, ids: Tensor, name: str) -> Tensor:
        """Words times the root of the width."""
        with b.block("embed"):
            scale = self._text.filled(b, "scale", math.sqrt(self._config.text.width), 1)
            return b.binary("mul", b.embedding(self._table(b), ids, name=f"{name}.words"), scale, name=name)

    def _table(self, b: Builder) -> Tensor:
        config = self._config
        return self._weights.constant(b, config.table, config.vocabulary, config.text.width)
