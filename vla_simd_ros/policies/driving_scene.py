"""From cameras, motion and instruction of a vehicle to rows that a language model reads, and from what it
plans to poses in the map: what driving planners have in common."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks import trajectory
from vla_simd_ros.policies.blocks.eva import Eva
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.blocks.normalization import normalized_image, normalized_vector, unnormalized
from vla_simd_ros.policies.blocks.transformer import Sequence, Transformer, TransformerConfig
from vla_simd_ros.policies.driving_config import DrivingConfig
from vla_simd_ros.policies.weights import Weights


class DrivingScene:
    """The parts of a driving planner around its language model; ``heads`` are the stored names of those that
    ask about the scene."""

    def __init__(self, checkpoint: Checkpoint, config: DrivingConfig, heads: tuple[str, ...]) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._weights = Weights(checkpoint.weights, "model.")
        self._vision = Eva(
            config.vision, Weights(checkpoint.weights, "model.vision."), config.height, config.width
        )
        self._heads = {name: Weights(checkpoint.weights, f"model.{name}.") for name in heads}

    @property
    def weights(self) -> Weights:
        """All weights of the policy (names after "model.")."""
        return self._weights

    def instruction(self, b: Builder, tokens: int | None) -> Tensor:
        """The embedded instruction [tokens, width]. Raises GraphError for a length that cannot be."""
        most = self._config.max_tokens
        if tokens is None or not 1 <= tokens <= most:
            raise GraphError(
                f"{self._config.type}: got an instruction of {tokens} tokens, expected 1 to {most}"
            )
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        with b.block("instruction"):
            shape = self._config.vocabulary, self._config.text.width
            return b.embedding(
                self._weights.constant(b, "text.embed_tokens.weight", *shape), ids, name="words"
            )

    def observed(self, b: Builder, state: Tensor) -> list[Tensor]:
        """The rows that the vehicle's motion and every head's answers come to, as wide as the text."""
        memory = self._memory(b)
        answers = [self._asked(b, memory, name) for name in self._heads]
        with b.block("ego"):
            ego = linear(b, state, self._weights, "ego_proj", self._config.text.width, name="token")
        return [ego, *answers]

    def state(self, b: Builder) -> tuple[Tensor, Tensor]:
        """The vehicle's state [1, 8] as it is given, and its motion as the network takes it."""
        feature = self._config.state
        with b.block("preprocess"):
            given = b.input("state", (1, feature.channels), DType.F32, Lifetime.QUERY)
            x = normalized_vector(b, given, self._checkpoint.normalizers[feature.name], name="state")
            return given, trajectory.motion(b, x, name="state.motion")

    def learned(self, b: Builder, name: str) -> Tensor:
        """A learned row of the text's width."""
        return self._weights.constant(b, f"tokens.{name}", 1, self._config.text.width)

    def plan(self, b: Builder, rows: Tensor, state: Tensor) -> None:
        """Declare the output ``action`` from a plan [chunk_size, 4] in the network's units."""
        with b.block("postprocess"):
            unnormalizer = self._checkpoint.unnormalizers[self._config.action.name]
            relative = unnormalized(b, rows, unnormalizer, name="relative")
            b.output("action", trajectory.placed_in_map(b, relative, state, name="action"))

    def _memory(self, b: Builder) -> Sequence:
        """What the heads look at: the patches of all views, and where the cameras see them."""
        x = self._vision.build(b, [self._image(b, camera) for camera in self._config.cameras])
        views, patches, width = len(self._config.cameras), self._vision.patches, self._queries.width
        with b.block("scene"):
            tokens = linear(b, x, self._weights, "image_proj", width, name="tokens")
            stored = self._weights.constant(b, "camera_positions", views * patches, width)
            order = self._weights.made(("order",), self._order)
            return Sequence(tokens, b.embedding(stored, b.constant("scene.order", order), name="positions"))

    def _order(self) -> Array:
        """The number, view by view in row-major order, of every patch as the tower returns them."""
        views = np.arange(len(self._config.cameras), dtype=np.int32)[:, None]
        order: Array = (views * np.int32(self._vision.patches) + self._vision.order()).reshape(-1)
        return order

    def _image(self, b: Builder, camera: str) -> Tensor:
        feature = self._config.cameras[camera]
        channels, height, width = feature.shape
        with b.block("preprocess"):
            image = b.input(f"image.{camera}", (height, width, channels), DType.U8, Lifetime.QUERY)
            return normalized_image(
                b, image, self._checkpoint.normalizers[feature.name], name=f"image.{camera}"
            )

    def _asked(self, b: Builder, memory: Sequence, name: str) -> Tensor:
        """The answers to one head's queries, as wide as the text."""
        weights, layers = self._heads[name], self._config.queries.layers
        shape = self._config.queries.count, self._queries.width
        with b.block(f"{name}.0"):
            positions = weights.constant(b, "queries", *shape)
            queries = Sequence(weights.zeros(b, f"{name}.zeros", *shape), positions)
        answers = Transformer(self._queries, weights).decode(b, queries, memory, layers, name)
        with b.block(f"{name}.{layers - 1}"):
            return linear(b, answers, weights, "proj", self._config.text.width, name="tokens")

    @property
    def _queries(self) -> TransformerConfig:
        return self._config.queries.transformer


class DrivingPlanner:
    """What a driving planner is besides its graph; see PolicyDefinition."""

    solver = None
    action_tokens = None

    def __init__(self, checkpoint: Checkpoint, config: DrivingConfig, heads: tuple[str, ...]) -> None:
        self._config = config
        self._scene = DrivingScene(checkpoint, config, heads)

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and the longest instruction."""
        return self._config.spec

    def check_stored(self) -> None:
        """The word embeddings may be used where they are stored."""
        self._scene.weights.check_mapped()


def perceptron(b: Builder, x: Tensor, weights: Weights, module: str, outputs: int, *, name: str) -> Tensor:
    """Two linear layers with a GELU between, the first as wide as ``x``."""
    y = linear(b, x, weights, f"{module}.linear1", x.shape[1], name=f"{name}.linear1")
    return linear(
        b, b.activation("gelu", y, name=f"{name}.gelu"), weights, f"{module}.linear2", outputs, name=name
    )
