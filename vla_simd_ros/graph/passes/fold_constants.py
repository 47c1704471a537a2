"""Compute at load what can be known at load: every operation of lifetime PROCESS.

Values are computed when an executor asks for them, in float64, and rounded to float32 once, where a runtime
program reads them. Operations that only move values round before or after with the same result, so they work
on float32: positions are projected and rounded part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vla_simd_ros.graph.blocks import Blocks, joined
from vla_simd_ros.graph.evaluate import evaluate
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Graph, LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.lazy_array import Exact
from vla_simd_ros.graph.passes.rewriting import attrs_key

_MOVES = ("concat", "slice", "reshape", "transpose", "embedding")


def fold_constants(graph: Graph, cache: FoldCache) -> Graph:
    """The graph with a constant in place of every operation of lifetime PROCESS."""
    values = dict(graph.constants)
    runtime: list[Op] = []
    for op in graph.ops:
        if op.output.lifetime is Lifetime.PROCESS:
            values[op.output] = _fold(op, [None if t is None else values[t] for t in op.inputs], cache)
        else:
            runtime.append(op)
    read = dict.fromkeys(t for op in runtime for t in op.operands())
    read.update(dict.fromkeys(graph.outputs.values()))
    results: dict[Tensor, LazyArray] = {t: values[t] for t in read if t.lifetime is Lifetime.PROCESS}
    return replace(graph, constants=results, ops=runtime)


def _fold(op: Op, operands: Sequence[LazyArray | None], cache: FoldCache) -> LazyArray:
    """The result of ``op``; the same object whenever the same is computed from the same operands."""
    if op.kind == "concat" and op.attrs["axis"] == 0:
        whole = _whole([part for part in operands if part is not None], cache)
        if whole is not None:
            return whole
    if op.kind == "slice" and op.attrs["axis"] == 0:
        (source,) = operands
        assert source is not None
        return _rows(source, op.attrs["start"], op.attrs["stop"], cache)
    return cache.get((op.kind, attrs_key(op.attrs), *operands), lambda: _Folded(op, operands))


def _rows(source: LazyArray, start: int, stop: int, cache: FoldCache) -> LazyArray:
    if isinstance(source, _Rows):
        return _rows(source.source, source.start + start, source.start + stop, cache)
    if (start, stop) == (0, source.shape[0]):
        return source
    return cache.get(("rows", start, stop, source), lambda: _Rows(source, start, stop))


def _whole(parts: Sequence[LazyArray], cache: FoldCache) -> LazyArray | None:
    """What rows that follow one another in one array are when they are put together again."""
    first = parts[0]
    if not isinstance(first, _Rows):
        return None
    end = first.start
    for part in parts:
        if not isinstance(part, _Rows) or part.source is not first.source or part.start != end:
            return None
        end = part.stop
    return _rows(first.source, first.start, end, cache)


class _Rows(LazyArray):
    """Some rows of an array."""

    def __init__(self, source: LazyArray, start: int, stop: int) -> None:
        super().__init__((stop - start, *source.shape[1:]), source.dtype)
        self.source = source
        self.start = start
        self.stop = stop

    def rows(self, start: int, stop: int) -> Array:
        return self.source.rows(self.start + start, self.start + stop)

    @property
    def block_form(self) -> str | None:
        return self.source.block_form

    def blocks(self) -> Blocks | None:
        blocks = self.source.blocks()
        return None if blocks is None else blocks.rows(self.start, self.stop)

    def exact(self, known: Exact) -> Array:
        if isinstance(self.source, _Folded):
            return self.source.exact(known)[self.start : self.stop]
        return self.array()

    def whole(self) -> tuple[LazyArray, int]:
        # Executors then hold one array for the instructions of all lengths.
        if 2 * self.shape[0] < self.source.shape[0]:
            return self, 0
        return self.source, self.start

    def _make(self) -> Array:
        return self.source.rows(self.start, self.stop)


class _Folded(LazyArray):
    """The result of an operation."""

    def __init__(self, op: Op, operands: Sequence[LazyArray | None]) -> None:
        super().__init__(op.output.shape, op.output.dtype.numpy)
        self._op = op
        self._operands = operands

    @property
    def block_form(self) -> str | None:
        """That of all parts of a matrix that are put below each other."""
        if self._op.kind != "concat" or self._op.attrs["axis"] != 0:
            return None
        forms = {None if part is None else part.block_form for part in self._operands}
        return forms.pop() if len(forms) == 1 else None

    def blocks(self) -> Blocks | None:
        if self.block_form is None:
            return None
        parts = [None if part is None else part.blocks() for part in self._operands]
        return joined([part for part in parts if part is not None])

    def exact(self, known: Exact) -> Array:
        if self not in known:
            values = [None if operand is None else operand.exact(known) for operand in self._operands]
            known[self] = self._evaluate(values)
        return known[self]

    def _make(self) -> Array:
        if self._op.kind in _MOVES:
            return evaluate(self._op, [None if o is None else o.array() for o in self._operands], np.float32)
        return self.exact({}).astype(self.dtype, copy=False)

    def _evaluate(self, values: Sequence[Array | None]) -> Array:
        """The operation in float64; what only moves float32 values leaves them as they are."""
        wide = any(v is not None and v.dtype == np.float64 for v in values)
        return evaluate(self._op, values, np.float64 if wide or self._op.kind not in _MOVES else np.float32)
