"""Timing one kernel at a time, on shapes of one's choosing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.cost import op_cost
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor


@dataclass(frozen=True)
class KernelTime:
    """The shortest time of one operation, and its rate."""

    kernel: str
    ms: float
    gflops_per_s: float


class KernelProbe:
    """Runs programs of a single operation on an executor's engine, with random values.

    Every method returns the shortest of ``repeats`` runs, after one that is not counted.
    """

    def __init__(self, executor: SimdExecutor, repeats: int = 9) -> None:
        self._executor = executor
        self._repeats = repeats
        self._random = np.random.default_rng(0)

    def linear(self, m: int, n: int, k: int) -> KernelTime:
        """[m, k] times [n, k] transposed, with bias."""
        builder = Builder()
        x = builder.input("x", (m, k), DType.F32, Lifetime.QUERY)
        weight, bias = self._constant(builder, "weight", n, k), self._constant(builder, "bias", n)
        return self._time(builder, builder.linear(x, weight, bias, name="y"))

    def conv2d(
        self, height: int, width: int, channels: int, filters: int, kernel: int = 3, stride: int = 1
    ) -> KernelTime:
        """A square kernel over an image [height, width, channels], padded by half the kernel."""
        builder = Builder()
        x = builder.input("x", (height, width, channels), DType.F32, Lifetime.QUERY)
        weight = self._constant(builder, "weight", filters, kernel, kernel, channels)
        return self._time(builder, builder.conv2d(x, weight, stride=stride, padding=kernel // 2, name="y"))

    def attention(self, queries: int, keys: int, heads: int, head_dim: int) -> KernelTime:
        """Scaled dot-product attention."""
        builder = Builder()
        rows = {"q": queries, "k": keys, "v": keys}
        q, k, v = (
            builder.input(name, (count, heads * head_dim), DType.F32, Lifetime.QUERY)
            for name, count in rows.items()
        )
        scale = 1 / math.sqrt(head_dim)
        return self._time(builder, builder.attention(q, k, v, heads=heads, scale=scale, name="y"))

    def _constant(self, builder: Builder, name: str, *shape: int) -> Tensor:
        return builder.constant(name, self._values(shape))

    def _values(self, shape: tuple[int, ...]) -> Array:
        return self._random.standard_normal(shape, dtype=np.float32)

    def _time(self, builder: Builder, result: Tensor) -> KernelTime:
        builder.output("y", result)
        compiled = compile_graph(builder.graph(), FoldCache())
        executable = self._executor.load(compiled)
        inputs = {name: self._values(t.shape) for name, t in compiled.inputs.items()}
        executable.run(Lifetime.QUERY, inputs)
        (record,) = executable.profile(Lifetime.QUERY, inputs, self._repeats)
        return KernelTime(record.kernel, record.ms, op_cost(record.op).flops / record.ms / 1e6)
