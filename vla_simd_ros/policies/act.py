"""ACT: one transformer pass from images and state to a chunk of actions.

The encoder reads one token each for the latent (zero at inference), the state and the environment state,
then the feature maps of all cameras; the decoder turns learned queries into actions.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.act_config import ActConfig, read_act_config
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.normalization import normalized_image, normalized_vector, unnormalized
from vla_simd_ros.policies.blocks.positions import sine_positions_2d
from vla_simd_ros.policies.blocks.resnet import ResNet
from vla_simd_ros.policies.blocks.transformer import Sequence, Transformer
from vla_simd_ros.policies.weights import Weights

Film = Items[tuple[Tensor, Tensor]]


class ActPolicy:
    """ACT as LeRobot stores it. Raises CheckpointError for what does not fit."""

    solver = None
    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config = read_act_config(checkpoint, encoder_layers=4, decoder_layers=1, chunk=100)
        self._network = ActNetwork(checkpoint, self._config, lambda stage: f"layer{stage + 1}")

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths and chunk size."""
        return self._config.spec("act")

    def check_stored(self) -> None:
        """Nothing of ACT is used where it is stored."""

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph; ACT takes no instruction, so ``tokens`` must be None."""
        if tokens is not None:
            raise GraphError(f"act takes no instruction, got {tokens} tokens")
        b = Builder()
        observed = self._network.observe(b)
        self._network.act(b, observed)
        return b.graph()


class ActNetwork:
    """The parts of ACT; a descendant puts its own tokens between :meth:`observe` and :meth:`act`."""

    def __init__(self, checkpoint: Checkpoint, config: ActConfig, stage_name: Callable[[int], str]) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._weights = Weights(checkpoint.weights, "model.")
        self._transformer = Transformer(config.transformer, self._weights)
        self.backbone = ResNet(
            config.backbone,
            Weights(checkpoint.weights, "model.backbone."),
            stage_name,
            width=config.backbone_width,
            dilated=config.dilated,
        )

    @property
    def weights(self) -> Weights:
        """The network's weights (names after "model.")."""
        return self._weights

    def observe(self, b: Builder, film: Film | None = None) -> list[Sequence]:
        """The tokens of latent, state, environment state and each camera, in the encoder's order."""
        single = [self._latent(b), *self._vectors(b)]
        with b.block("tokens"):
            rows = len(single)
            positions = self._weights.constant(
                b, "encoder_1d_feature_pos_embed.weight", rows, self._config.transformer.width
            )
            tokens = b.concat(single, axis=0, name="single")
        return [
            Sequence(tokens, positions),
            *(self._view(b, camera, film) for camera in self._config.cameras),
        ]

    def encode(self, b: Builder, parts: Items[Sequence]) -> Sequence:
        """Encode the parts one after the other.

        The last part may have more positions than tokens; the first ones are taken.
        """
        with b.block("tokens"):
            tokens = b.concat([part.tokens for part in parts], axis=0, name="all")
            positions = _first_rows(b, [part.positions for part in parts], tokens.shape[0], "positions")
            x = Sequence(tokens, positions)
        return Sequence(self._transformer.encode(b, x, self._config.encoder_layers), positions)

    def observed_rows(self) -> int:
        """How many tokens :meth:`observe` gives."""
        vectors = [v for v in (self._config.state, self._config.env_state) if v is not None]
        grids = (self.backbone.grid(*feature.shape[1:]) for feature in self._config.cameras.values())
        return 1 + len(vectors) + sum(rows * columns for rows, columns in grids)

    def act(self, b: Builder, parts: Items[Sequence]) -> None:
        """Encode the parts, decode the chunk, and declare the output ``action``."""
        memory = self.encode(b, parts)
        decoded = self._transformer.decode(b, self._queries(b), memory, self._config.decoder_layers)
        with b.block("head"):
            actions = self._linear(b, decoded, "action_head", self._config.action.channels, "actions")
        with b.block("postprocess"):
            unnormalizer = self._checkpoint.unnormalizers[self._config.action.name]
            b.output("action", unnormalized(b, actions, unnormalizer, name="action"))

    def _queries(self, b: Builder) -> Sequence:
        shape = self._config.chunk_size, self._config.transformer.width
        with b.block("decoder.0"):
            # The stored table first: it tells whether chunk_size can be right before zeros of it are made.
            positions = self._weights.constant(b, "decoder_pos_embed.weight", *shape)
            return Sequence(self._weights.zeros(b, "decoder.queries", *shape), positions)

    def _latent(self, b: Builder) -> Tensor:
        module, width = "encoder_latent_input_proj", self._config.transformer.width
        # The stored projection first: it tells whether latent_dim can be right before zeros of it are made.
        self._weights.shape(f"{module}.weight", (width, self._config.latent_dim))
        with b.block("tokens"):
            zeros = self._weights.zeros(b, "latent", 1, self._config.latent_dim)
            return self._linear(b, zeros, module, width, "latent")

    def _vectors(self, b: Builder) -> list[Tensor]:
        """One token each for the state and the environment state, where the policy has them."""
        vectors = (("state", self._config.state, "robot"), ("env_state", self._config.env_state, "env"))
        return [
            self._vector(b, name, feature, role) for name, feature, role in vectors if feature is not None
        ]

    def _vector(self, b: Builder, name: str, feature: Feature, role: str) -> Tensor:
        with b.block("preprocess"):
            given = b.input(name, (1, feature.channels), DType.F32, Lifetime.QUERY)
            normalizer = self._checkpoint.normalizers[feature.name]
            x = normalized_vector(b, given, normalizer, name=name)
        with b.block("tokens"):
            return self._linear(
                b, x, f"encoder_{role}_state_input_proj", self._config.transformer.width, name
            )

    def _view(self, b: Builder, camera: str, film: Film | None) -> Sequence:
        """The tokens of one camera: its last feature map, pixel by pixel."""
        feature = self._config.cameras[camera]
        channels, height, width = feature.shape
        with b.block("preprocess"):
            image = b.input(f"image.{camera}", (height, width, channels), DType.U8, Lifetime.QUERY)
            x = normalized_image(b, image, self._checkpoint.normalizers[feature.name], name=f"image.{camera}")
        x = self.backbone.build(b, x, f"backbone.{camera}", film)
        rows, columns, depth = x.shape
        dim = self._config.transformer.width
        with b.block("tokens"):
            pixels = b.reshape(x, (rows * columns, depth), name=f"image.{camera}.pixels")
            filters = self._weights.filters(b, "encoder_img_feat_input_proj.weight", dim, depth, 1)
            weight = b.reshape(filters, (dim, depth), name=f"image.{camera}.weight")
            bias = self._weights.constant(b, "encoder_img_feat_input_proj.bias", dim)
            tokens = b.linear(pixels, weight, bias, name=f"image.{camera}")
            table = sine_positions_2d(rows, columns, dim)
            return Sequence(tokens, b.constant(f"positions.{rows}x{columns}", table))

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int, name: str) -> Tensor:
        weight = self._weights.constant(b, f"{module}.weight", outputs, x.shape[1])
        return b.linear(x, weight, self._weights.constant(b, f"{module}.bias", outputs), name=name)


def _first_rows(b: Builder, parts: Items[Tensor], rows: int, name: str) -> Tensor:
    """The first rows of the parts put together."""
    if sum(part.shape[0] for part in parts) == rows:
        return b.concat(parts, axis=0, name=name)
    whole = b.concat(parts, axis=0, name=f"{name}.whole")
    return b.slice(whole, axis=0, start=0, stop=rows, name=name)
