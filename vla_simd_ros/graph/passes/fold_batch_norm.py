"""Put frozen batch norms into the weights of the convolution or linear layer before them.

The arithmetic is done in float64 and rounded once, when the weights are asked for. A batch norm that follows
anything else becomes a multiplication and an addition, so that none is left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.lazy_array import MadeArray
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import use_counts, with_ops


def fold_batch_norm(graph: Graph, cache: FoldCache) -> Graph:
    """The graph without batch norms. Raises GraphError where a norm's parameters are not constants."""
    return _Folding(graph, cache).run()


class _Folding:
    def __init__(self, graph: Graph, cache: FoldCache) -> None:
        self.graph = graph
        self.cache = cache
        self.uses = use_counts(graph)
        self.producers = graph.producers()
        self.constants: dict[Tensor, LazyArray] = {}
        self.tensors: dict[LazyArray, Tensor] = {}

    def run(self) -> Graph:
        ops: dict[Tensor, Op] = {}
        for op in self.graph.ops:
            if op.kind != "batch_norm":
                ops[op.output] = op
                continue
            source = self._foldable(op)
            if source is None:
                ops.update((lowered.output, lowered) for lowered in self._lower(op))
            else:
                del ops[source.output]
                ops[op.output] = self._merge(source, op)
        return with_ops(self.graph, list(ops.values()), self.constants)

    def _foldable(self, op: Op) -> Op | None:
        """The layer before the norm, if the norm can go into its weights."""
        x = op.inputs[0]
        assert x is not None
        source = self.producers.get(x)
        if source is None or source.kind not in ("conv2d", "linear") or self.uses[x] > 1:
            return None
        _, weight, bias, residual, gamma, _ = source.inputs
        bare = residual is None and gamma is None and source.attrs["activation"] == "none"
        known = weight in self.graph.constants and (bias is None or bias in self.graph.constants)
        return source if bare and known else None

    def _merge(self, source: Op, op: Op) -> Op:
        x, weight, bias, *rest = source.inputs
        filters = self._value(op, weight)
        shift = None if bias is None else self._value(op, bias)
        scale, norm_bias, mean = self._parameters(op)
        width = (-1,) + (1,) * (len(filters.shape) - 1)
        parameters, eps = self._parameter_values(op), op.attrs["eps"]
        new_weight = self._constant(
            f"{op.output.name}.weight",
            ("bn.weight", filters, *parameters, eps),
            filters.shape,
            op,
            lambda: filters.array() * scale().reshape(width),
        )
        new_bias = self._constant(
            f"{op.output.name}.bias",
            ("bn.bias", shift, *parameters, eps),
            filters.shape[:1],
            op,
            lambda: ((0.0 if shift is None else _exact(shift)) - mean()) * scale() + norm_bias(),
        )
        return Op(source.kind, (x, new_weight, new_bias, *rest), op.output, source.attrs)

    def _lower(self, op: Op) -> list[Op]:
        """The norm as a multiplication and an addition."""
        scale, norm_bias, mean = self._parameters(op)
        name, eps, parameters = op.output.name, op.attrs["eps"], self._parameter_values(op)
        shape = parameters[0].shape
        factor = self._constant(f"{name}.scale", ("bn.scale", *parameters, eps), shape, op, scale)
        offset = self._constant(
            f"{name}.shift",
            ("bn.shift", *parameters, eps),
            shape,
            op,
            lambda: norm_bias() - mean() * scale(),
        )
        scaled = make_op(
            "binary", (op.inputs[0], factor), {"op": "mul"}, name=f"{name}.scaled", block=op.block
        )
        return [scaled, Op("binary", (scaled.output, offset), op.output, {"op": "add"})]

    def _parameters(self, op: Op) -> tuple[Callable[[], Array], Callable[[], Array], Callable[[], Array]]:
        """Scale, bias and mean of the norm in float64, computed when asked for."""
        weight, bias, mean, var = self._parameter_values(op)
        eps = op.attrs["eps"]
        return (
            lambda: np.asarray(weight.array() / np.sqrt(_exact(var) + eps)),
            lambda: _exact(bias),
            lambda: _exact(mean),
        )

    def _parameter_values(self, op: Op) -> list[LazyArray]:
        return [self._value(op, tensor) for tensor in op.inputs[1:]]

    def _value(self, op: Op, tensor: Tensor | None) -> LazyArray:
        if tensor not in self.graph.constants:
            raise GraphError(f"batch_norm '{op.output.name}': {tensor!r} is not a constant")
        assert tensor is not None
        return self.graph.constants[tensor]

    def _constant(
        self,
        name: str,
        structure: tuple[object, ...],
        shape: tuple[int, ...],
        op: Op,
        compute: Callable[[], Array],
    ) -> Tensor:
        """The tensor of a folded value; one for all norms that fold to the same (a shared backbone)."""

        def rounded() -> Array:
            return compute().astype(np.float32)

        value = self.cache.get(structure, lambda: MadeArray(shape, np.float32, rounded))
        if value not in self.tensors:
            tensor = Tensor(name, shape, DType.F32, Lifetime.PROCESS, op.block)
            self.tensors[value] = tensor
            self.constants[tensor] = value
        return self.tensors[value]


def _exact(value: LazyArray) -> Array:
    return value.array().astype(np.float64)
