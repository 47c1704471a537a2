from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.weights import Weights


class Source:
    def __init__(self) -> None:
        self.filters = np.arange(2 * 3 * 5 * 5, dtype=np.float32).reshape(2, 3, 5, 5)

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        assert (name, shape) in (("model.conv.weight", (2, 3, 5, 5)), ("model.conv.weight", None))
        return self.filters


def test_filters_put_channels_last_without_copying() -> None:
    source, b = Source(), Builder()
    weights = Weights(source, "model.")
    tensor = weights.filters(b, "conv.weight", 2, 3, 5)
    assert (tensor.name, tensor.shape) == ("model.conv.weight", (2, 5, 5, 3))
    value = b._graph.constants[tensor]
    assert np.shares_memory(value, source.filters)
    assert value[1, 2, 4, 0] == source.filters[1, 0, 2, 4]


def test_what_is_made_is_made_once() -> None:
    weights = Weights(Source(), "model.")
    values = []
    for _ in range(2):
        b = Builder()
        tensors = weights.zeros(b, "zeros", 2, 3), weights.filters(b, "conv.weight", 2, 3, 5)
        values.append([b._graph.constants[t] for t in tensors])
    assert all(one is other for one, other in zip(*values, strict=True))
    assert values[0][0].shape == (2, 3) and not values[0][0].any()
