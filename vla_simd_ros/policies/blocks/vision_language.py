"""Interaction of vision and language, and a decoder that reads both: norms come before every sub-layer."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.weights import Weights

_EPS = 1e-5
_INTERACTION, _DECODER = "vl_interaction", "action_decoder"


@dataclass(frozen=True)
class TrunkConfig:
    """Sizes of what vision and language go through together."""

    width: int
    heads: int
    feedforward: int
    activation: str
    fusion_layers: int
    decoder_layers: int


class VisionLanguage:
    """Interaction layers and decoder layers as they are stored."""

    def __init__(self, config: TrunkConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    def interact(self, b: Builder, vision: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens of both sides after all interaction layers and the norms that follow them."""
        layers = self._config.fusion_layers
        for index in range(layers):
            with b.block(f"fusion.{index}"):
                vision, text = self._interaction_layer(b, vision, text, f"{_INTERACTION}.layers.{index}")
        with b.block(f"fusion.{layers - 1}"):
            return (
                self._norm(b, vision, f"{_INTERACTION}.norm_vision", "vision.final_norm"),
                self._norm(b, text, f"{_INTERACTION}.norm_text", "text.final_norm"),
            )

    def decode(self, b: Builder, vision: Tensor, text: Tensor, queries: int) -> Tensor:
        """Learned queries after all decoder layers, which attend to both sides, and the final norm."""
        layers = self._config.decoder_layers
        with b.block("tokens"):
            memory = b.concat((vision, text), axis=0, name="memory")
        with b.block("decoder.0"):
            x = self._weights.constant(b, f"{_DECODER}.query_embed.weight", queries, self._config.width)
        for index in range(layers):
            with b.block(f"decoder.{index}"):
                x = self._decoder_layer(b, x, memory, f"{_DECODER}.layers.{index}")
        with b.block(f"decoder.{layers - 1}"):
            return self._norm(b, x, f"{_DECODER}.norm", "final_norm")

    def _interaction_layer(
        self, b: Builder, vision: Tensor, text: Tensor, prefix: str
    ) -> tuple[Tensor, Tensor]:
        """Both sides after reading the other one as it was before this layer."""
        seen = self._norm(b, vision, f"{prefix}.norm_vision_attn", "vision.norm1")
        read = self._norm(b, text, f"{prefix}.norm_text_attn", "text.norm1")
        to_vision = self._attention(b, seen, read, f"{prefix}.text_to_vision_attn", "vision.cross_attn")
        to_text = self._attention(b, read, seen, f"{prefix}.vision_to_text_attn", "text.cross_attn")
        vision = b.add(vision, to_vision, name="vision.cross_attn.sum")
        text = b.add(text, to_text, name="text.cross_attn.sum")
        return (
            self._feedforward(b, vision, f"{prefix}.norm_vision_ffn", f"{prefix}.vision_ffn", "vision."),
            self._feedforward(b, text, f"{prefix}.norm_text_ffn", f"{prefix}.text_ffn", "text."),
        )

    def _decoder_layer(self, b: Builder, x: Tensor, memory: Tensor, prefix: str) -> Tensor:
        y = self._norm(b, x, f"{prefix}.norm_self_attn", "norm1")
        x = b.add(x, self._attention(b, y, y, f"{prefix}.self_attn", "self_attn"), name="self_attn.sum")
        y = self._norm(b, x, f"{prefix}.norm_cross_attn", "norm_cross")
        y = self._attention(b, y, memory, f"{prefix}.cross_attn", "cross_attn")
        x = b.add(x, y, name="cross_attn.sum")
        return self._feedforward(b, x, f"{prefix}.norm_ffn", f"{prefix}.ffn", "")

    def _attention(self, b: Builder, query: Tensor, source: Tensor, module: str, name: str) -> Tensor:
        """Multi-head attention of ``query`` to the rows of ``source``."""
        width, heads = self._config.width, self._config.heads
        q, k, v = (
            linear(b, x, self._weights, f"{module}.{part}_proj", width, name=f"{name}.{part}")
            for part, x in (("q", query), ("k", source), ("v", source))
        )
        y = b.attention(q, k, v, heads=heads, scale=(width // heads) ** -0.5, name=f"{name}.attention")
        return linear(b, y, self._weights, f"{module}.out_proj", width, name=f"{name}.out")

    def _feedforward(self, b: Builder, x: Tensor, norm: str, module: str, name: str) -> Tensor:
        y = self._norm(b, x, norm, f"{name}norm2")
        y = linear(b, y, self._weights, f"{module}.linear1", self._config.feedforward, name=f"{name}linear1")
        y = b.activation(self._config.activation, y, name=f"{name}{self._config.activation}")
        y = linear(b, y, self._weights, f"{module}.linear2", self._config.width, name=f"{name}linear2")
        return b.add(x, y, name=f"{name}linear2.sum")

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        return layer_norm(b, x, self._weights, module, eps=_EPS, name=name)
