"""OpenVLA: two vision towers look at one image, a Llama 2 reads what they see and a question, and answers
with tokens that stand for an action, one for each of its columns.

The prefix (the mark that a text begins with, the image, the question) leaves keys and values in states once a
query; the step program reads tokens behind it and scores what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.decoding.cached_model import state_rows
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.causal_llama import CausalLlama, KeptTokens
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.blocks.timm_vit import TimmVit
from vla_simd_ros.policies.openvla_config import BODY, HEAD, PROJECTOR, OpenVlaConfig, read_openvla_config
from vla_simd_ros.policies.openvla_crop import CentreCrop
from vla_simd_ros.policies.openvla_images import tower_image
from vla_simd_ros.policies.weights import Weights

_SPACE = "▁"
"""The token that the answer is asked for with: a space on its own, as in training it stood before the first
one."""


class OpenVlaPolicy:
    """OpenVLA from a published folder. Raises CheckpointError for what does not fit."""

    solver = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = self._config = read_openvla_config(checkpoint)
        weights = checkpoint.weights
        self._towers = [TimmVit(tower.vit, Weights(weights, tower.prefix)) for tower in config.towers]
        self._projector = Weights(weights, PROJECTOR)
        self._text = Weights(weights, BODY)
        self._head = Weights(weights, HEAD)
        self._action_tokens = _make_tokens(config, _asking_token(checkpoint, config))
        context = self._action_tokens.prefix_rows(config.max_tokens) + self._action_tokens.count
        self._stack = CausalLlama(config.text, config.layers, state_rows(context), self._text)

    @property
    def spec(self) -> PolicySpec:
        """Camera, width of an action and the longest prompt."""
        return self._config.spec

    @property
    def action_tokens(self) -> OpenVlaTokens:
        """How an action is spelled."""
        return self._action_tokens

    def check_stored(self) -> None:
        """The word embeddings may be used where they are stored."""
        self._text.check_mapped()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for a prompt of ``tokens`` tokens, 2 to ``spec.max_instruction_tokens``, and passes of
        ``rows`` tokens behind it."""
        if tokens is None or not 2 <= tokens <= self._config.max_tokens:
            raise GraphError(
                f"openvla: got a prompt of {tokens} tokens, expected 2 to {self._config.max_tokens}"
            )
        b = Builder()
        kept = self._stack.begin(b)
        self._read_prefix(b, tokens, kept)
        ids = b.input("step_ids", (rows,), DType.I32, Lifetime.STEP)
        positions = b.input("step_positions", (rows,), DType.I32, Lifetime.STEP)
        x = self._stack.read(b, self._embedded(b, ids, "tokens"), positions, kept, "layers")
        with b.block("head"):
            weight = self._head.constant(
                b, "lm_head.weight", self._config.vocabulary, self._config.text.width
            )
            b.output("scores", b.linear(self._stack.normed(b, x), weight, name="scores"))
        return b.graph()

    def _read_prefix(self, b: Builder, tokens: int, kept: KeptTokens) -> None:
        """The prompt with the image behind its first token, the mark."""
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        words = self._embedded(b, ids, "prompt")
        image = self._image(b)
        with b.block("prefix.0"):
            begin = b.slice(words, axis=0, start=0, stop=1, name="begin")
            question = b.slice(words, axis=0, start=1, stop=tokens, name="question")
            x = b.concat([begin, image, question], axis=0, name="tokens")
        rows = x.shape[0]
        places = self._text.made(("positions", rows), lambda: np.arange(rows, dtype=np.int32))
        self._stack.read(b, x, b.constant("prefix.positions", places), kept, "prefix")

    def _image(self, b: Builder) -> Tensor:
        """What the towers see in each patch, side by side, projected to the width of the text."""
        config = self._config
        channels, height, width = config.cameras[config.camera].shape
        if config.crop_area is not None:
            height = width = config.towers[0].images.side
        frame = b.input(_frame(config), (height, width, channels), DType.U8, Lifetime.QUERY)
        seen = []
        for index, (tower, vit) in enumerate(zip(config.towers, self._towers, strict=True)):
            with b.block("preprocess"):
                x = tower_image(b, frame, tower.images, name=f"image.{index}")
            seen.append(vit.patch_features(b, x, _named(str(index))))
        with b.block("projector"):
            return self._projected(b, b.concat(seen, axis=1, name="patches"))

    def _projected(self, b: Builder, x: Tensor) -> Tensor:
        """Two layers where one tower sees, three where two do."""
        width = self._config.text.width
        widths = [width, width] if len(self._towers) == 1 else [4 * x.shape[1], width, width]
        for index, outputs in enumerate(widths, 1):
            if index > 1:
                x = b.activation("gelu", x, name=f"gelu{index - 1}")
            x = linear(b, x, self._projector, f"fc{index}", outputs, name=f"linear{index}")
        return x

    def _embedded(self, b: Builder, ids: Tensor, name: str) -> Tensor:
        with b.block("embed"):
            table = self._text.constant(
                b, "embed_tokens.weight", self._config.vocabulary, self._config.text.width
            )
            return b.embedding(table, ids, name=name)


class OpenVlaTokens:
    """An action as one token for each of its columns: the last words of the vocabulary stand for bins of
    equal width between -1 and 1, the last one for the lowest bin. See
    :class:`vla_simd_ros.policies.base.ActionTokens`.
    """

    stop: frozenset[int] = frozenset()

    def __init__(self, config: OpenVlaConfig, first: int) -> None:
        self._config = config
        borders = np.linspace(-1, 1, config.bins)
        self._centres = (borders[:-1] + borders[1:]) / 2
        self.vocabulary = config.vocabulary
        self.first = first
        self.count = config.statistics.width

    def prefix_rows(self, tokens: int | None) -> int:
        """The prompt's and the image's."""
        return self._config.patches + (tokens or 0)

    def actions(self, tokens: Sequence[int]) -> Array:
        """The action, float32 [1, width] in robot units, or none where tokens of it are missing. Raises
        DecodingError for tokens that stand for none."""
        words, bins = self._config.words, self._config.bins
        for place, token in enumerate(tokens):
            if not words - bins <= token < words:
                raise DecodingError(
                    f"token {token} at place {place} stands for no action, expected {words - bins} to "
                    f"{words - 1}"
                )
        if len(tokens) < self.count:
            return np.empty((0, self.count), np.float32)
        # There is a border more than there are bins between them, and the last two share one.
        chosen = np.minimum(words - 1 - np.array(tokens), bins - 2)
        value, seen = self._centres[chosen], self._config.statistics
        scaled = 0.5 * (value + 1) * (seen.high - seen.low) + seen.low
        return np.asarray(np.where(seen.scaled, scaled, value), np.float32)[None]


class CroppedOpenVlaTokens(OpenVlaTokens):
    """The same behind the middle of a frame; see :class:`vla_simd_ros.policies.base.PromptedTokens`."""

    def __init__(self, config: OpenVlaConfig, first: int, area: float) -> None:
        super().__init__(config, first)
        _, height, width = config.cameras[config.camera].shape
        self._input = _frame(config)
        self._crop = CentreCrop(area, height, width, config.towers[0].images.side)

    def prompt(
        self, instruction: str, tokens: int, values: Mapping[str, Array]
    ) -> tuple[Mapping[str, Array], int]:
        """The frame's middle in its place, and all of the prompt."""
        return {**values, self._input: self._crop(values[self._input])}, tokens


def _make_tokens(config: OpenVlaConfig, first: int) -> OpenVlaTokens:
    if config.crop_area is None:
        return OpenVlaTokens(config, first)
    return CroppedOpenVlaTokens(config, first, config.crop_area)


def _frame(config: OpenVlaConfig) -> str:
    """The name of the frame's input."""
    return f"image.{config.camera}"


def _asking_token(checkpoint: Checkpoint, config: OpenVlaConfig) -> int:
    """The token behind the prompt. Raises CheckpointError where the tokenizer's words are not the
    network's."""
    tokenizer = checkpoint.tokenizer()
    words, known = tokenizer.word_count, tokenizer.vocabulary_size
    if words != config.words or known > config.vocabulary:
        raise CheckpointError(
            f"{tokenizer.source}: has {words} words and {known} tokens, expected {config.words} words "
            f"(text_config.vocab_size of config.json less pad_to_multiple_of) and at most "
            f"{config.vocabulary} tokens"
        )
    return tokenizer.token_id(_SPACE)


def _named(tower: str) -> Callable[[str], str]:
    return lambda part: f"vision.{tower}.{part}"
