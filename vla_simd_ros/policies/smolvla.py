"""SmolVLA: a vision-language model reads the observation, an expert turns noise into actions.

The prefix (images, instruction, state) passes through the language model once. What it leaves in each layer,
keys and values, is what the expert's layers attend to, in every step that the solver takes from noise to a
chunk of actions.
"""

from __future__ import annotations

import math

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.image_geometry import letterboxed
from vla_simd_ros.policies.blocks.llama import KeysValues, LlamaLayer
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.blocks.normalization import (
    normalized_image,
    normalized_vector,
    to_both_sides_of_zero,
    unnormalized,
)
from vla_simd_ros.policies.blocks.siglip import Siglip
from vla_simd_ros.policies.smolvla_config import read_smolvla_config
from vla_simd_ros.policies.smolvla_sizes import BODY, CONNECTOR, EXPERT, TEXT, VISION
from vla_simd_ros.policies.solvers.flow_matching import FlowMatching, TimeEmbedding
from vla_simd_ros.policies.weights import Weights

# What fills an image up to its square: black, after the image is scaled to [-1, 1].
_BLACK = -1.0
_MARKS_BEFORE = ("<fake_token_around_image>", "<global-img>")
_MARKS_AFTER = ("<fake_token_around_image>",)


class SmolVlaPolicy:
    """SmolVLA as LeRobot stores it. Raises CheckpointError for what does not fit."""

    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._config = read_smolvla_config(checkpoint)
        self._weights = Weights(checkpoint.weights, "model.")
        self._body = Weights(checkpoint.weights, BODY)
        self._vision = Siglip(self._config.vision, Weights(checkpoint.weights, BODY + VISION))
        self._text = Weights(checkpoint.weights, BODY + TEXT)
        self._expert = Weights(checkpoint.weights, BODY + EXPERT)
        self._marks = self._mark_ids() if self._config.image_marks else {}

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and the longest instruction."""
        return self._config.spec

    @property
    def solver(self) -> FlowMatching:
        """Euler steps from noise to actions."""
        config = self._config
        embedding = TimeEmbedding(config.expert.width, config.shortest_period, config.longest_period)
        return FlowMatching(
            config.num_steps, config.chunk_size, config.action_width, embedding, config.guidance
        )

    def check_stored(self) -> None:
        """The word embeddings may be used where they are stored."""
        self._text.check_mapped()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        if tokens is None or not 1 <= tokens <= self._config.max_tokens:
            raise GraphError(
                f"smolvla: got an instruction of {tokens} tokens, expected 1 to {self._config.max_tokens}"
            )
        b = Builder()
        prefix = self._prefix(b, tokens)
        remembered = self._read(b, prefix)
        sample = b.input("sample", self.solver.sample_shape, DType.F32, Lifetime.STEP)
        velocity = self._velocity(b, sample, remembered, prefix.shape[0])
        with b.block("solver"):
            following = self._step(b, sample, velocity)
        b.output("sample", following)
        with b.block("postprocess"):
            feature = self._config.action
            chosen = b.slice(following, axis=1, start=0, stop=feature.channels, name="actions")
            unnormalizer = self._checkpoint.unnormalizers[feature.name]
            b.output("action", unnormalized(b, chosen, unnormalizer, name="action"))
        return b.graph()

    def _prefix(self, b: Builder, tokens: int) -> Tensor:
        """What the language model reads: the tokens of each image, the instruction, and the state."""
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        with b.block("text"):
            instruction = self._scaled(b, self._words(b, ids, "embedded"), "scaled")
        images = [part for camera in self._config.cameras for part in self._image(b, camera)]
        state = self._state(b)
        with b.block("prefix.0"):
            return b.concat([*images, instruction, state], axis=0, name="tokens")

    def _words(self, b: Builder, ids: Tensor, name: str) -> Tensor:
        table = self._text.constant(
            b, "embed_tokens.weight", self._config.vocabulary, self._config.text.width
        )
        return b.embedding(table, ids, name=name)

    def _scaled(self, b: Builder, x: Tensor, name: str) -> Tensor:
        """Embeddings times the root of their width."""
        return b.binary(
            "mul", x, self._text.filled(b, "scale", math.sqrt(self._config.text.width), 1), name=name
        )

    def _image(self, b: Builder, camera: str) -> list[Tensor]:
        """The tokens of one camera's image, between marks where the policy has them."""
        feature = self._config.cameras[camera]
        channels, height, width = feature.shape
        with b.block("preprocess"):
            image = b.input(f"image.{camera}", (height, width, channels), DType.U8, Lifetime.QUERY)
            normalizer = to_both_sides_of_zero(self._checkpoint.normalizers[feature.name])
            x = normalized_image(b, image, normalizer, name=f"image.{camera}")
            if self._config.image_size is not None:
                x = letterboxed(b, x, *self._config.image_size, _BLACK, name=f"image.{camera}.fitted")
        patches = x.shape[0] // self._config.vision.patch
        states = self._vision.build(b, x, lambda part: f"vision.{camera}.{part}")
        with b.block(f"connector.{camera}"):
            tokens = self._scaled(b, self._connected(b, states, patches), "scaled")
        if not self._config.image_marks:
            return [tokens]
        before, after = (
            self._words(b, b.constant(f"{where}.ids", ids), f"{camera}.{where}")
            for where, ids in self._marks.items()
        )
        return [before, tokens, after]

    def _connected(self, b: Builder, states: Tensor, patches: int) -> Tensor:
        """Squares of neighbouring patches, each side by side in one row, projected to the text's width."""
        side, width = self._config.shuffle, self._config.vision.width
        order = self._weights.made(("shuffle", patches), lambda: _shuffled(patches, side))
        rows = b.embedding(states, b.constant(f"shuffled.{patches}", order), name="shuffled")
        squares = b.reshape(rows, (rows.shape[0] // side**2, side**2 * width), name="squares")
        weight = self._body.constant(b, CONNECTOR, self._config.text.width, squares.shape[1])
        return b.linear(squares, weight, name="projected")

    def _state(self, b: Builder) -> Tensor:
        config = self._config
        width = config.state.channels
        with b.block("preprocess"):
            given = b.input("state", (1, width), DType.F32, Lifetime.QUERY)
            x = normalized_vector(b, given, self._checkpoint.normalizers[config.state.name], name="state")
            x = self._padded(b, x, config.state_width, "state")
        with b.block("state"):
            return self._linear(b, x, "state_proj", config.text.width, "token")

    def _padded(self, b: Builder, x: Tensor, width: int, name: str) -> Tensor:
        """``x`` with zeros on the right, up to ``width`` columns."""
        rows, columns = x.shape
        if columns == width:
            return x
        zeros = self._weights.zeros(b, f"{name}.zeros", rows, width - columns)
        return b.concat([x, zeros], axis=1, name=f"{name}.padded")

    def _read(self, b: Builder, x: Tensor) -> list[KeysValues]:
        """What the language model's layers leave for the expert: their keys and values of the prefix.

        Images and instruction do not see the state, which comes last.
        """
        rows = x.shape[0]
        mask = self._weights.made(("prefix_mask", rows), lambda: _all_but_last_column(rows))
        remembered = []
        for index in range(len(self._config.expert_layers)):
            layer = LlamaLayer(self._config.text, self._text, f"layers.{index}")
            with b.block(f"prefix.{index}"):
                y = layer.input_norm(b, x)
                queries = layer.queries(b, y, 0)
                left = layer.keys_values(b, y, 0)
                bias = b.constant("prefix_mask", mask)
                x = layer.attend(b, x, queries, left, bias, "self_attn")
            remembered.append(left)
        return remembered

    def _velocity(self, b: Builder, sample: Tensor, remembered: list[KeysValues], prefix_rows: int) -> Tensor:
        """The expert's answer to a sample, given the prefix."""
        x = self._sample_tokens(b, sample)
        rows = x.shape[0]
        for beside, left in zip(self._config.expert_layers, remembered, strict=True):
            if beside is None:
                continue
            layer = LlamaLayer(self._config.expert, self._expert, f"layers.{beside.index}")
            with b.block(f"expert.{beside.index}"):
                y = layer.input_norm(b, x)
                if beside.joint:
                    own = layer.keys_values(b, y, prefix_rows)
                    seen = _joined(b, left, own)
                    mask = self._weights.made(("mask", prefix_rows), lambda: _causal(prefix_rows, rows))
                    queries, bias = layer.queries(b, y, prefix_rows), b.constant("expert_mask", mask)
                    x = layer.attend(b, x, queries, seen, bias, "self_attn")
                else:
                    seen = layer.projected(b, left, "cross_attn")
                    x = layer.attend(b, x, layer.queries(b, y, 0), seen, None, "cross_attn")
        with b.block("head"):
            norm = self._expert.constant(b, "norm.weight", self._config.expert.width)
            x = b.rms_norm(x, norm, eps=self._config.expert.eps, name="norm")
            return self._linear(b, x, "action_out_proj", self._config.action_width, "velocity")

    def _sample_tokens(self, b: Builder, sample: Tensor) -> Tensor:
        """A token for each row of the sample, from the row and the time.

        The first layer's weight has the columns for rows before those for the time, which is the same for
        all rows and so projected once.
        """
        width = self._config.expert.width
        time = b.input("time_embedding", (1, width), DType.F32, Lifetime.STEP)
        with b.block("embed"):
            rows = self._linear(b, sample, "action_in_proj", width, "rows")
            weight = self._weights.constant(b, "action_time_mlp_in.weight", width, 2 * width)
            bias = self._weights.constant(b, "action_time_mlp_in.bias", width)
            for_rows = b.slice(weight, axis=1, start=0, stop=width, name="linear1.weight")
            for_time = b.slice(weight, axis=1, start=width, stop=2 * width, name="linear1.time_weight")
            moment = b.linear(time, for_time, bias, name="linear1.time")
            x = b.add(b.linear(rows, for_rows, name="linear1"), moment, name="linear1.sum")
            x = b.activation("silu", x, name="silu")
            return self._linear(b, x, "action_time_mlp_out", width, "linear2")

    def _step(self, b: Builder, sample: Tensor, velocity: Tensor) -> Tensor:
        """The next sample: one step along the velocity, which is corrected so that the end of the straight
        way from here comes nearer to the rows of the previous chunk."""
        prefix = self._previous_rows(b)
        weights = b.input("prefix_weights", (self._config.chunk_size, 1), DType.F32, Lifetime.QUERY)
        steps, time, guidance = (
            b.input(name, (1,), DType.F32, Lifetime.STEP) for name in ("steps", "time", "guidance")
        )
        end = b.binary("sub", sample, b.binary("mul", velocity, time, name="way"), name="end")
        error = b.binary("mul", b.binary("sub", prefix, end, name="miss"), weights, name="error")
        correction = b.binary("mul", error, guidance, name="correction")
        velocity = b.binary("sub", velocity, correction, name="corrected")
        return b.binary("sub", sample, b.binary("div", velocity, steps, name="step"), name="next")

    def _previous_rows(self, b: Builder) -> Tensor:
        """The rows of the previous chunk in the network's units."""
        config = self._config
        shape = config.chunk_size, config.action.channels
        given = b.input("prefix", shape, DType.F32, Lifetime.QUERY)
        inverse = self._checkpoint.unnormalizers[config.action.name].inverse()
        return self._padded(
            b, normalized_vector(b, given, inverse, name="prefix"), config.action_width, "prefix"
        )

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int, name: str) -> Tensor:
        return linear(b, x, self._weights, module, outputs, name=name)

    def _mark_ids(self) -> dict[str, np.ndarray]:
        """Ids of the words around an image, by where they stand."""
        tokenizer = self._checkpoint.tokenizer()
        marks = (("before", _MARKS_BEFORE), ("after", _MARKS_AFTER))
        return {
            where: np.array([tokenizer.token_id(mark) for mark in names], np.int32) for where, names in marks
        }


def _joined(b: Builder, first: KeysValues, second: KeysValues) -> KeysValues:
    keys = b.concat([first.keys, second.keys], axis=0, name="self_attn.keys")
    return KeysValues(keys, b.concat([first.values, second.values], axis=0, name="self_attn.values"))


def _shuffled(patches: int, side: int) -> np.ndarray:
    """The numbers of the patches of an image of ``patches`` squared, square by square of ``side``."""
    numbers = np.arange(patches**2).reshape(patches // side, side, patches // side, side)
    return np.ascontiguousarray(numbers.transpose(0, 2, 1, 3)).reshape(-1).astype(np.int32)


def _all_but_last_column(rows: int) -> np.ndarray:
    """A mask with which only the last row sees the last one."""
    mask = np.zeros((1, rows, rows), np.float32)
    mask[0, :-1, -1] = -np.inf
    return mask


def _causal(before: int, rows: int) -> np.ndarray:
    """A mask with which each row sees the ``before`` ones, itself, and those between."""
    hidden = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
    return np.concatenate((np.zeros((rows, before), np.float32), hidden), axis=1)[None]
