from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.blocks import Blocks
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.weights import StoredArray, Weights

SHAPE = (2, 3, 5, 5)


class Source:
    """One convolution's filters; remembers how they were read."""

    def __init__(self) -> None:
        self.filters = np.arange(2 * 3 * 5 * 5, dtype=np.float32).reshape(SHAPE)
        self.read: list[object] = []

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        assert (name, expected) == ("model.conv.weight", SHAPE)
        return SHAPE

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        assert name == "model.conv.weight" and shape in (None, SHAPE)
        self.read.append("all")
        return self.filters.copy()

    def rows(self, name: str, start: int, stop: int) -> Array:
        self.read.append((start, stop))
        return self.filters[start:stop]

    def mapped(self, name: str) -> Array:
        self.read.append("mapped")
        return self.filters

    def check_mapped(self) -> None:
        self.read.append("checked")


def test_filters_put_channels_last_when_they_are_asked_for() -> None:
    source, b = Source(), Builder()
    weights = Weights(source, "model.")
    tensor = weights.filters(b, "conv.weight", 2, 3, 5)
    assert (tensor.name, tensor.shape) == ("model.conv.weight", (2, 5, 5, 3))
    assert source.read == []
    value = b._graph.constants[tensor].array()
    assert source.read == ["all"]
    np.testing.assert_array_equal(value, source.filters.transpose(0, 2, 3, 1))


def test_filters_may_be_changed() -> None:
    source, b = Source(), Builder()
    weights = Weights(source, "model.")
    as_stored, halved, again = (
        b._graph.constants[weights.filters(b, "conv.weight", 2, 3, 5, change)]
        for change in (None, _half, _half)
    )
    assert halved is again and halved is not as_stored
    np.testing.assert_array_equal(halved.array(), as_stored.array() / 2)


def _half(filters: Array) -> Array:
    return filters / np.float32(2)


def test_a_row_may_be_repeated() -> None:
    source, b = Source(), Builder()
    tensor = Weights(source, "model.").repeated_row(b, "conv.weight", 1, 3)
    np.testing.assert_array_equal(b._graph.constants[tensor].array(), source.filters[[1, 1, 1]])
    assert source.read == [(1, 2)]


def test_graphs_get_the_same_constants() -> None:
    weights = Weights(Source(), "model.")
    values, builders = [], [Builder(), Builder()]
    for b in builders:
        tensors = weights.zeros(b, "zeros", 2, 3), weights.filters(b, "conv.weight", 2, 3, 5)
        values.append([b._graph.constants[t] for t in tensors])
    assert all(one is other for one, other in zip(*values, strict=True))
    assert values[0][0].shape == (2, 3) and not values[0][0].array().any()


def test_small_values_are_read_once() -> None:
    source = Source()
    weights = Weights(source, "model.")
    assert weights.array("conv.weight", SHAPE) is weights.array("conv.weight", SHAPE)
    assert source.read == ["all"]


def test_a_stored_array_reads_no_more_than_it_must() -> None:
    source = Source()
    stored = StoredArray(source, "model.conv.weight", SHAPE)
    assert stored.rows(1, 2).shape == (1, 3, 5, 5)
    assert stored.mapped() is source.filters
    Weights(source, "model.").check_mapped()
    assert source.read == [(1, 2), "mapped", "checked"]


def test_tensors_that_a_source_keeps_in_blocks_stay_in_them() -> None:
    class BlockSource(Source):
        def block_form(self, name: str) -> str | None:
            return "q8_0" if name == "model.conv.weight" else None

        def blocks(self, name: str) -> Blocks | None:
            return Blocks("q8_0", np.zeros((2, 34), np.uint8))

    builders = Builder(), Builder()
    kept, plain = (
        b._graph.constants[Weights(source, "model.").constant(b, "conv.weight", *SHAPE)]
        for b, source in zip(builders, (BlockSource(), Source()), strict=True)
    )
    blocks = kept.blocks()
    assert kept.block_form == "q8_0" and blocks is not None and blocks.shape == (2, 32)
    assert plain.block_form is None and plain.blocks() is None
