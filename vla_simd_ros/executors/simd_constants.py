"""Constants in the form the engine wants and states, made once and shared by all programs of an engine.

The arrays that they are made from are let go of, one by one: only the engine's copies stay in memory.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

import vla_simd_ros._engine as _engine
from vla_simd_ros.executors.convolution_forms import DIRECT, Form
from vla_simd_ros.executors.identity_cache import IdentityCache
from vla_simd_ros.graph.ir import Array, KeyValueState, LazyArray

BORROWED_BYTES = 16 << 20
"""Plain arrays from this size on (embedding tables) are used where they are stored, and not copied."""


class EngineConstants:
    """The constants of one engine: packed weights, plain arrays and normalization tables; and the states.

    With ``as_stored`` weights are kept in blocks of few bits where they come in such, and in bfloat16 where
    that changes no value.
    """

    def __init__(self, engine: _engine.Engine, as_stored: bool = False) -> None:
        self._engine = engine
        self._as_stored = as_stored
        self._packed: dict[tuple[Form, bool, bool], IdentityCache[_engine.PackedWeights]] = {}
        self._blocks: IdentityCache[_engine.BlockWeights] = IdentityCache()
        self._int8: dict[tuple[int, bool], IdentityCache[_engine.Int8Weights]] = {}
        self._plain: IdentityCache[_engine.Constant] = IdentityCache()
        self._tables: IdentityCache[_engine.Constant] = IdentityCache()
        self._states: WeakKeyDictionary[KeyValueState, _engine.KeyValues] = WeakKeyDictionary()

    def packed(
        self, weight: LazyArray, form: Form = DIRECT, row_by_row: bool = False, strassen: bool = False
    ) -> _engine.PackedWeights:
        """A weight [N, K], or filters [Cout, kh, kw, Cin], in the engine's panel layout; with a
        form of Winograd's method, filters for that. That of a linear layer can be kept ``row_by_row``, or for
        Strassen's method if it is not kept in bfloat16."""

        def make() -> _engine.PackedWeights:
            matrix = weight.array().reshape(weight.shape[0], -1)
            return self._engine.pack(
                matrix, *form.packing, rows=row_by_row, strassen=strassen, bf16_where_exact=self._as_stored
            )

        return self._packed.setdefault((form, row_by_row, strassen), IdentityCache()).get((weight,), make)

    def block_form(self, weight: LazyArray) -> str | None:
        """The format of the blocks in which a weight or table is kept, if it is."""
        return weight.block_form if self._as_stored else None

    def blocks(self, weight: LazyArray) -> _engine.BlockWeights:
        """A weight [N, K], or a table, that has a :meth:`block_form`."""

        def make() -> _engine.BlockWeights:
            blocks = weight.blocks()
            assert blocks is not None
            return self._engine.pack_blocks(blocks.form, blocks.data, weight.shape[1])

        return self._blocks.get((weight,), make)

    def weight_bytes(self) -> dict[str, int]:
        """Memory of the weights that are kept in each type."""
        kept = {"float32": 0, "bfloat16": 0, "int8": 0}
        for packed in (weight for cache in self._packed.values() for weight in cache):
            kept["bfloat16" if packed.bf16 else "float32"] += packed.bytes
        kept["int8"] = sum(weight.bytes for cache in self._int8.values() for weight in cache)
        for blocks in self._blocks:
            kept[blocks.form] = kept.get(blocks.form, 0) + blocks.bytes
        return kept

    def int8(self, weight: LazyArray, runs: int, winograd: bool = False) -> _engine.Int8Weights:
        """A weight quantized for the engine's INT8 kernels; each output channel has ``runs`` runs of weights
        for adjacent input values, and 3x3 filters can be packed for Winograd's method. Raises ValueError for
        more weights than the sums of products can take."""

        def make() -> _engine.Int8Weights:
            return self._engine.pack_int8(weight.array().reshape(weight.shape[0], -1), runs, winograd)

        return self._int8.setdefault((runs, winograd), IdentityCache()).get((weight,), make)

    def plain(self, value: LazyArray) -> tuple[_engine.Constant, int]:
        """The array as it is, at an offset in bytes from the beginning of a constant."""
        whole, first_row = value.whole()

        def make() -> _engine.Constant:
            borrow = whole.nbytes >= BORROWED_BYTES
            return _engine.Constant(whole.mapped() if borrow else whole.array(), borrow)

        row_bytes = whole.nbytes // whole.shape[0] if first_row else 0
        return self._plain.get((whole,), make), first_row * row_bytes

    def key_values(self, state: KeyValueState) -> _engine.KeyValues:
        """The memory of a state, the same for all programs."""
        if state not in self._states:
            self._states[state] = self._engine.key_values(state.rows, state.kv_heads, state.head)
        return self._states[state]

    def pixel_table(self, offset: LazyArray, divisor: LazyArray) -> _engine.Constant:
        """(x / 255 - offset) / divisor in float32 for each channel and each of the 256 pixel values."""

        def make() -> _engine.Constant:
            return _engine.Constant(pixel_table(offset.array(), divisor.array()))

        return self._tables.get((offset, divisor), make)


def pixel_table(offset: Array, divisor: Array) -> Array:
    """[C, 256] float32: the normalized value of each pixel value in each channel, in float32 arithmetic."""
    pixels = np.arange(256, dtype=np.float32) / np.float32(255)
    return np.ascontiguousarray((pixels - offset[:, None]) / divisor[:, None])
