"""Parts of Llama layers: rotary positions, grouped keys and values, gated feed-forward layers.

Qwen2's are the same with biases where queries, keys and values are projected; Gemma's with another
activation, and with gains of norms that are stored less 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.weights import Weights

BASE = 10000.0
"""Of the wavelengths of rotary positions, where nothing else is said."""


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a layer; ``head`` is the width of one of ``heads`` query or ``kv_heads`` key heads.

    ``base`` is that of the wavelengths of rotary positions, ``interleaved``: they turn neighbouring columns,
    not halves of a head; ``stretch``, where given, has the factors by which the wavelengths are longer, [head
    / 2]. ``biased``: queries, keys and values have biases. ``activation`` is that of the gate;
    ``gains_less_one``: so the gains of norms are stored.
    """

    width: int
    heads: int
    kv_heads: int
    head: int
    feedforward: int
    eps: float
    base: float = BASE
    biased: bool = False
    interleaved: bool = False
    stretch: tuple[float, ...] = ()
    activation: str = "silu"
    gains_less_one: bool = False

    @property
    def query_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head

    @property
    def key_width(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.kv_heads * self.head


@dataclass(frozen=True)
class KeysValues:
    """What can be attended to: keys (their positions applied) and values, [n, key width]."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines of the angles that rows are turned by, [rows, head / 2]."""

    cos: Tensor
    sin: Tensor


class LlamaLayer:
    """One layer, named ``prefix`` among ``weights``; a policy puts attention between its parts."""

    def __init__(self, config: LlamaConfig, weights: Weights, prefix: str) -> None:
        self._config = config
        self._weights = weights
        self._prefix = prefix

    def input_norm(self, b: Builder, x: Tensor) -> Tensor:
        """What queries, keys and values are projected from."""
        return self._norm(b, x, "input_layernorm", "norm1")

    def queries(self, b: Builder, x: Tensor, start: int | Rotary) -> Tensor:
        """Queries of rows ``x`` at positions from ``start`` on, or turned as given."""
        q = self._projection(b, x, "q", self._config.query_width, "self_attn.q")
        return self._rotated(b, q, start, self._config.heads, "self_attn.q.rotated")

    def keys_values(self, b: Builder, x: Tensor, start: int | Rotary) -> KeysValues:
        """Keys and values of rows ``x`` at positions from ``start`` on, or turned as given."""
        plain = self.projected(b, KeysValues(x, x), "self_attn")
        keys = self._rotated(b, plain.keys, start, self._config.kv_heads, "self_attn.k.rotated")
        return KeysValues(keys, plain.values)

    def projected(self, b: Builder, x: KeysValues, name: str) -> KeysValues:
        """The layer's projections of keys and values, without positions."""
        width = self._config.key_width
        keys = self._projection(b, x.keys, "k", width, f"{name}.k")
        return KeysValues(keys, self._projection(b, x.values, "v", width, f"{name}.v"))

    def attend(
        self, b: Builder, x: Tensor, q: Tensor, to: KeysValues, bias: Tensor | None, name: str
    ) -> Tensor:
        """``x`` plus what queries ``q`` find, then the feed-forward layer."""
        config = self._config
        y = b.attention(
            q,
            to.keys,
            to.values,
            bias,
            heads=config.heads,
            kv_heads=config.kv_heads,
            scale=config.head**-0.5,
            name=f"{name}.attention",
        )
        return self._attended(b, x, y, name)

    def attend_cached(self, b: Builder, x: Tensor, q: Tensor, to: Tensor, positions: Tensor) -> Tensor:
        """``x`` plus what queries ``q`` at ``positions`` find in a state, then the feed-forward layer."""
        config = self._config
        heads = {"heads": config.heads, "kv_heads": config.kv_heads, "scale": config.head**-0.5}
        y = b.cached_attention(q, to, positions, name="self_attn.attention", **heads)
        return self._attended(b, x, y, "self_attn")

    def _attended(self, b: Builder, x: Tensor, y: Tensor, name: str) -> Tensor:
        y = self._linear(b, y, "self_attn.o_proj", self._config.width, f"{name}.out")
        return self._feedforward(b, b.add(x, y, name=f"{name}.sum"))

    def _feedforward(self, b: Builder, x: Tensor) -> Tensor:
        inner = self._config.feedforward
        y = self._norm(b, x, "post_attention_layernorm", "norm2")
        gate = self._linear(b, y, "mlp.gate_proj", inner, "linear1.gate")
        up = self._linear(b, y, "mlp.up_proj", inner, "linear1")
        fn = self._config.activation
        y = b.binary("mul", b.activation(fn, gate, name=fn), up, name="gated")
        y = self._linear(b, y, "mlp.down_proj", self._config.width, "linear2")
        return b.add(x, y, name="linear2.sum")

    def _rotated(self, b: Builder, x: Tensor, start: int | Rotary, heads: int, name: str) -> Tensor:
        turn = self._rotary(b, start, x.shape[0]) if isinstance(start, int) else start
        interleaved = self._config.interleaved
        return b.rotary(x, turn.cos, turn.sin, heads=heads, name=name, interleaved=interleaved)

    def _rotary(self, b: Builder, start: int, rows: int) -> Rotary:
        config = self._config
        cos, sin = rotary_tables(start, rows, config.head, config.base, config.stretch)
        name = f"rotary.{start}+{rows}"
        return Rotary(b.constant(f"{name}.cos", cos), b.constant(f"{name}.sin", sin))

    def _projection(self, b: Builder, x: Tensor, part: str, outputs: int, name: str) -> Tensor:
        """Queries, keys or values."""
        module = f"{self._prefix}.self_attn.{part}_proj"
        return linear(b, x, self._weights, module, outputs, name=name, bias=self._config.biased)

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int, name: str) -> Tensor:
        return linear(b, x, self._weights, f"{self._prefix}.{module}", outputs, name=name, bias=False)

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        return llama_norm(b, x, self._weights, f"{self._prefix}.{module}", self._config, name=name)


def llama_norm(
    b: Builder, x: Tensor, weights: Weights, module: str, config: LlamaConfig, *, name: str
) -> Tensor:
    """The norm ``module`` of each row, as layers with these sizes have it."""
    gain = weights.constant(b, f"{module}.weight", config.width)
    if config.gains_less_one:
        gain = b.add(gain, weights.filled(b, "one", 1.0, 1), name=f"{name}.gain")
    return b.rms_norm(x, gain, eps=config.eps, name=name)


@lru_cache(maxsize=64)
def rotary_tables(
    start: int, count: int, head: int, base: float = BASE, stretch: tuple[float, ...] = ()
) -> tuple[Array, Array]:
    """Cosines and sines, float32 [count, head / 2], of positions ``start`` to ``start + count - 1``.

    Angles are rounded to float32 as where models are trained; powers, sines and cosines are correctly
    rounded.
    """
    exponent = np.float32(2.0 / head) * np.arange(head // 2, dtype=np.float32)
    wavelength = (base ** exponent.astype(np.float64)).astype(np.float32)
    if stretch:
        wavelength *= np.array(stretch, np.float32)
    positions = np.arange(start, start + count, dtype=np.float32)
    angle = (positions[:, None] / wavelength).astype(np.float64)
    tables = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    for table in tables:
        table.flags.writeable = False
    return tables
