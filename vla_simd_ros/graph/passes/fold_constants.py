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
    results = _Folding(graph, cache).run([t for t in read if t.lifetime is Lifetime.PROCESS])
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
        self.exact: dict[Tensor, Array] = dict(graph.constants)
        self.rounded: dict[Tensor, Array] = dict(graph.constants)

    def run(self, tensors: list[Tensor]) -> dict[Tensor, Array]:
        """The values of ``tensors`` in their own dtype."""
        round_wanted, exact_wanted = self._wanted(tensors)
        for op in self.ops:
            self._compute(op, op.output in round_wanted, op.output in exact_wanted)
        return {tensor: self.cache.contiguous(self.rounded[tensor]) for tensor in tensors}

    def _wanted(self, tensors: list[Tensor]) -> tuple[set[Tensor], set[Tensor]]:
        """The tensors to compute: those needed rounded and not remembered, and those needed in float64."""
        round_wanted = {tensor for tensor in tensors if not self._remembered(tensor)}
        exact_wanted: set[Tensor] = set()
        for op in reversed(self.ops):
            moves = op.kind in _MOVES
            for operand in op.operands():
                if operand in self.given:
                    continue
                if op.output in exact_wanted or (op.output in round_wanted and not moves):
                    exact_wanted.add(operand)
                if op.output in round_wanted and moves and not self._remembered(operand):
                    round_wanted.add(operand)
        return round_wanted, exact_wanted

    def _remembered(self, tensor: Tensor) -> bool:
        """Whether the rounded value is known already; it is held from then on."""
        if tensor not in self.rounded:
            value = self.cache.find(self.keys[tensor])
            if value is None:
                return False
            self.rounded[tensor] = value
        return True

    def _compute(self, op: Op, round_wanted: bool, exact_wanted: bool) -> None:
        moves = op.kind in _MOVES
        if exact_wanted or (round_wanted and not moves):
            result = evaluate(op, [None if t is None else self.exact[t] for t in op.inputs])
            if exact_wanted:
                self.exact[op.output] = result
            if round_wanted and not moves:
                self._remember(op, result.astype(op.output.dtype.numpy, copy=False))
        if round_wanted and moves:
            self._remember(op, _move(op, [self.rounded[t] for t in op.operands()]))

    def _remember(self, op: Op, value: Array) -> None:
        keep = op.kind not in _MOVES
        self.rounded[op.output] = self.cache.store(self.keys[op.output], value, keep=keep)


def _move(op: Op, values: list[Array]) -> Array:
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
