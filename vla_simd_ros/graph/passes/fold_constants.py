"""Compute at load what can be known at load: every operation of lifetime PROCESS.

Values are computed in float64 and rounded to float32 once, where a runtime program reads them. Operations
that only move values round before or after with the same result, so they work on float32: positions are
projected and rounded part by part, and each part is remembered by the cache.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from vla_simd_ros.graph.evaluate import evaluate
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.passes.rewriting import attrs_key

_MOVES = ("concat", "slice", "reshape", "embedding")


def fold_constants(graph: Graph, cache: FoldCache) -> Graph:
    """The graph with a constant in place of every operation of lifetime PROCESS."""
    runtime = [op for op in graph.ops if op.output.lifetime is not Lifetime.PROCESS]
    read = dict.fromkeys(t for op in runtime for t in op.operands())
    read.update(dict.fromkeys(graph.outputs.values()))
    results = _Folding(graph, cache).rounded([t for t in read if t.lifetime is Lifetime.PROCESS])
    return Graph(dict(graph.inputs), results, runtime, dict(graph.outputs))


class _Folding:
    def __init__(self, graph: Graph, cache: FoldCache) -> None:
        self.cache = cache
        self.given = graph.constants
        self.ops = [op for op in graph.ops if op.output.lifetime is Lifetime.PROCESS]
        self.keys: dict[Tensor, int] = {t: cache.array_key(v) for t, v in graph.constants.items()}
        for op in self.ops:
            operands = tuple(None if t is None else self.keys[t] for t in op.inputs)
            self.keys[op.output] = cache.number((op.kind, attrs_key(op.attrs), operands))
        self.exact: dict[Tensor, Array] = {}

    def rounded(self, tensors: list[Tensor]) -> dict[Tensor, Array]:
        """The values of ``tensors`` in their own dtype."""
        round_wanted, exact_wanted = self._wanted(tensors)
        for op in self.ops:
            self._compute(op, op.output in round_wanted, op.output in exact_wanted)
        return {tensor: self.cache.contiguous(self._rounded(tensor)) for tensor in tensors}

    def _wanted(self, tensors: list[Tensor]) -> tuple[set[Tensor], set[Tensor]]:
        """The computed tensors needed rounded, and those needed in float64."""
        round_wanted = {t for t in tensors if t not in self.given and self.keys[t] not in self.cache}
        exact_wanted: set[Tensor] = set()
        for op in reversed(self.ops):
            for operand in op.operands():
                if operand in self.given:
                    continue
                moves = op.kind in _MOVES
                if op.output in exact_wanted or (op.output in round_wanted and not moves):
                    exact_wanted.add(operand)
                if op.output in round_wanted and moves and self.keys[operand] not in self.cache:
                    round_wanted.add(operand)
        return round_wanted, exact_wanted

    def _compute(self, op: Op, round_wanted: bool, exact_wanted: bool) -> None:
        result: Array | None = None
        if exact_wanted or (round_wanted and op.kind not in _MOVES):
            result = evaluate(op, [None if t is None else self._exact(t) for t in op.inputs])
        if exact_wanted and result is not None:
            self.exact[op.output] = result
        if round_wanted:
            if op.kind in _MOVES:
                result = self._move(op, [self._rounded(t) for t in op.operands()])
            assert result is not None
            self.cache.store(self.keys[op.output], result.astype(op.output.dtype.numpy, copy=False))

    def _exact(self, tensor: Tensor) -> Array:
        return self.given[tensor] if tensor in self.given else self.exact[tensor]

    def _rounded(self, tensor: Tensor) -> Array:
        return self.given[tensor] if tensor in self.given else self.cache[self.keys[tensor]]

    def _move(self, op: Op, values: list[Array]) -> Array:
        if op.kind == "concat" and op.attrs["axis"] == 0 and _adjacent(values):
            # The parts of one array, put together again: the array itself, not a copy.
            return np.lib.stride_tricks.as_strided(values[0], op.output.shape, writeable=False)
        return evaluate(op, values, np.float32)


def _adjacent(values: list[Array]) -> bool:
    """Whether the values follow one another in the memory of one array."""
    if not all(value.flags.c_contiguous for value in values) or len({id(_owner(v)) for v in values}) > 1:
        return False
    return all(a.ctypes.data + a.nbytes == b.ctypes.data for a, b in pairwise(values))


def _owner(value: Array) -> object:
    """What owns the memory: the end of the chain of views."""
    owner: object = value
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner
