"""Where tensors live: views, concatenations computed in place, and what must be copied."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import graphs

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.memory import plan_arena
from vla_simd_ros.graph.programs import CompiledPolicy, Program
from vla_simd_ros.graph.storage import VIEWS, Place, Storage, plan_storage


class Net:
    """A builder with inputs and constants that need no names."""

    def __init__(self) -> None:
        self.b = Builder()
        self.rng = np.random.default_rng(0)
        self.count = 0

    def _name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def x(self, *shape: int, lifetime: Lifetime = Lifetime.QUERY) -> Tensor:
        return self.b.input(self._name(), shape, DType.F32, lifetime)

    def linear(self, x: Tensor, width: int, name: str) -> Tensor:
        weight = self.rng.normal(size=(width, x.shape[1])).astype(np.float32)
        return self.b.linear(x, self.b.constant(self._name(), weight), name=name)

    def stored(self, *outputs: Tensor) -> tuple[dict[str, Place], Storage]:
        """Places by tensor name, after compilation."""
        for index, tensor in enumerate(outputs):
            self.b.output(f"out{index}", tensor)
        storage = plan_storage(_programs(compile_graph(self.b.graph(), FoldCache())))
        return {tensor.name: place for tensor, place in storage.places.items()}, storage


def _programs(compiled: CompiledPolicy) -> list[Program]:
    return [compiled.programs[lifetime] for lifetime in sorted(compiled.programs)]


def _copies(storage: Storage) -> int:
    return sum(len(copies) for copies in storage.copies.values())


def test_slices_of_a_merged_layer_are_views() -> None:
    net = Net()
    x = net.x(5, 8)
    q, k, v = (net.linear(x, 8, name) for name in "qkv")
    places, storage = net.stored(net.b.attention(q, k, v, heads=2, scale=1.0, name="y"))
    assert [(places[n].offset, places[n].cols, places[n].ld) for n in "qkv"] == [
        (0, 8, 24),
        (8, 8, 24),
        (16, 8, 24),
    ]
    assert len({places[n].root for n in "qkv"}) == 1
    assert not storage.copies


def test_rows_of_a_concatenation_are_computed_in_place() -> None:
    net = Net()
    one, two = net.linear(net.x(3, 4), 8, "one"), net.linear(net.x(5, 4), 8, "two")
    places, storage = net.stored(net.linear(net.b.concat([one, two], axis=0, name="whole"), 4, "y"))
    assert (places["one"].root.name, places["one"].offset) == ("whole", 0)
    assert (places["two"].root.name, places["two"].offset) == ("whole", 3 * 8)
    assert not storage.copies


def test_columns_of_a_concatenation_are_computed_in_place() -> None:
    net = Net()
    one, two = net.linear(net.x(3, 4), 8, "one"), net.linear(net.x(3, 4), 2, "two")
    places, storage = net.stored(net.linear(net.b.concat([one, two], axis=1, name="whole"), 4, "y"))
    assert (places["two"].root.name, places["two"].offset, places["two"].ld) == ("whole", 8, 10)
    assert not storage.copies


def test_nested_concatenations_are_computed_in_place() -> None:
    net = Net()
    parts = [net.linear(net.x(2, 4), 4, f"part{i}") for i in range(3)]
    inner = net.b.concat(parts[:2], axis=0, name="inner")
    wide = net.linear(net.x(4, 4), 4, "wide")
    places, storage = net.stored(
        net.linear(net.b.concat([wide, inner], axis=1, name="outer"), 4, "y"), parts[2]
    )
    assert (places["part1"].root.name, places["part1"].offset, places["part1"].ld) == ("outer", 2 * 8 + 4, 8)
    assert not storage.copies


def test_an_image_joins_a_concatenation_as_rows() -> None:
    net = Net()
    kernel = net.b.constant("kernel", net.rng.normal(size=(8, 1, 1, 4)).astype(np.float32))
    image = net.b.conv2d(net.x(3, 5, 4), kernel, name="features")
    rows = net.b.reshape(image, (15, 8), name="rows")
    whole = net.b.concat([net.linear(net.x(1, 4), 8, "state"), rows], axis=0, name="whole")
    places, storage = net.stored(net.linear(whole, 4, "y"))
    assert (places["features"].root.name, places["features"].offset) == ("whole", 8)
    assert not storage.copies


def test_a_reader_without_gaps_keeps_its_own_memory() -> None:
    net = Net()
    pixels = net.linear(net.x(15, 4), 4, "pixels")
    kernel = net.b.constant("kernel", net.rng.normal(size=(2, 1, 1, 4)).astype(np.float32))
    image = net.b.conv2d(net.b.reshape(pixels, (3, 5, 4), name="image"), kernel, name="features")
    whole = net.b.concat([net.linear(net.x(15, 4), 3, "other"), pixels], axis=1, name="whole")
    places, storage = net.stored(image, net.linear(whole, 2, "y"))
    assert places["pixels"].root.name == "pixels"
    assert places["other"].root.name == "whole"
    assert _copies(storage) == 1


def test_longer_lived_parts_and_constants_are_copied() -> None:
    net = Net()
    text = net.linear(net.x(2, 4, lifetime=Lifetime.EPISODE), 8, "text")
    state = net.linear(net.x(1, 4), 8, "state")
    latent = net.b.constant("latent", np.ones((1, 8), np.float32))
    whole = net.b.concat([latent, state, text], axis=0, name="whole")
    places, storage = net.stored(net.b.activation("tanh", whole, name="y"))
    assert places["text"].root.name == "text"
    assert places["state"].root.name == "whole"
    assert [copy.source.root.name for copies in storage.copies.values() for copy in copies] == [
        "latent",
        "text",
    ]
    assert {b.name for b in storage.buffers.values() if b.persistent} == {"text", "y"}


def test_a_part_that_occurs_twice_is_copied_once() -> None:
    net = Net()
    part = net.linear(net.x(2, 4), 4, "part")
    _, storage = net.stored(net.linear(net.b.concat([part, part], axis=0, name="whole"), 4, "y"))
    assert _copies(storage) == 1


def test_a_reshape_across_gaps_is_copied() -> None:
    net = Net()
    x = net.x(4, 6)
    half = net.b.slice(x, axis=1, start=0, stop=4, name="half")
    places, storage = net.stored(
        net.b.activation("tanh", net.b.reshape(half, (2, 8), name="folded"), name="y")
    )
    assert places["folded"].root.name == places["half"].root.name == "half"
    assert _copies(storage) == 1


def test_gaps_before_a_middle_axis_are_closed() -> None:
    net = Net()
    x = net.b.slice(net.x(2, 6, 4), axis=2, start=0, stop=3, name="narrow")
    y = net.b.slice(x, axis=1, start=1, stop=3, name="middle")
    places, storage = net.stored(net.b.activation("tanh", y, name="y"))
    assert places["narrow"].root.name == "narrow" and places["narrow"].dense
    assert _copies(storage) == 2


@pytest.mark.parametrize("lifetime", [Lifetime.QUERY, Lifetime.STEP])
def test_channels_of_an_image_are_copied_for_a_convolution_alone(lifetime: Lifetime) -> None:
    net = Net()
    x = net.b.activation("tanh", net.x(4, 5, 6), name="x")
    half = net.b.slice(x, axis=2, start=2, stop=5, name="half")
    other = net.x(4, 5, 3, lifetime=lifetime)
    weight = net.b.constant("w", np.ones((2, 3, 3, 3), np.float32))
    image = net.b.conv2d(net.b.add(other, half, name="sum"), weight, name="conv of the sum")
    places, storage = net.stored(image)
    assert places["half"].root.name == "x" and not storage.copies
    net.b.output("direct", net.b.conv2d(half, weight, name="conv"))
    places, storage = net.stored()
    assert places["half"].dense and _copies(storage) == 1


def test_a_residual_may_have_gaps() -> None:
    net = Net()
    x = net.b.activation("tanh", net.x(4, 5, 6), name="x")
    half = net.b.slice(x, axis=2, start=2, stop=5, name="half")
    weight = net.b.constant("w", np.ones((3, 1, 1, 3), np.float32))
    conv = net.b.conv2d(net.x(4, 5, 3), weight, name="conv")
    places, storage = net.stored(net.b.add(conv, half, name="y"))
    assert places["half"].root.name == "x" and not storage.copies


def _attended(net: Net, rows: int, width: int) -> Tensor:
    """Attention to keys and values from one layer of twice that width."""
    kv = net.linear(net.x(rows, 8), 2 * width, "both")
    k, v = (
        net.b.slice(kv, axis=1, start=i * width, stop=(i + 1) * width, name=name)
        for i, name in enumerate("kv")
    )
    q = net.linear(net.x(rows, 8), width, "q")
    return net.b.attention(q, k, v, heads=4, kv_heads=4, scale=1.0, name="mixed")


def test_what_attention_reads_is_spaced_where_its_rows_would_crowd() -> None:
    net = Net()
    places, storage = net.stored(net.b.add(_attended(net, 70, 256), net.x(70, 256), name="y"))
    sizes = {tensor.name: buffer.nbytes for tensor, buffer in storage.buffers.items()}
    assert (places["both"].cols, places["both"].ld, sizes["both"]) == (512, 528, 70 * 528 * 4)
    assert (places["q"].ld, sizes["q"]) == (272, 70 * 272 * 4)
    assert places["mixed"].ld == 256 and not storage.copies


@pytest.mark.parametrize(("rows", "width"), [(15, 128), (70, 120)])
def test_few_rows_and_other_widths_do_not_crowd(rows: int, width: int) -> None:
    net = Net()
    places, _ = net.stored(net.b.add(_attended(net, rows, width), net.x(rows, width), name="y"))
    assert places["both"].ld == 2 * width


def test_what_outlives_its_program_or_needs_its_rows_together_is_not_spaced() -> None:
    for reader in ("output", "reshape"):
        net = Net()
        kv = net.linear(net.x(70, 8), 256, "kv")
        mixed = net.b.attention(net.x(70, 256), kv, kv, heads=4, kv_heads=4, scale=1.0, name="mixed")
        other = (
            kv
            if reader == "output"
            else net.b.activation("relu", net.b.reshape(kv, (70 * 256,), name="row"), name="flat")
        )
        places, _ = net.stored(mixed, other)
        assert places["kv"].ld == 256, reader


@given(graphs())
def test_tensors_in_use_together_share_no_byte(case: tuple[Graph, dict[str, Array]]) -> None:
    programs = _programs(compile_graph(case[0], FoldCache()))
    storage = plan_storage(programs)
    plan = plan_arena(list(storage.buffers.values()))
    offsets = dict(zip(storage.buffers, plan.offsets, strict=True))
    for program in programs:
        for needed in _needed_together(program):
            used = [
                (t, _bytes_of(storage.places[t], offsets))
                for t in needed
                if storage.places[t].root in offsets
            ]
            for (one, a), (other, b) in combinations(used, 2):
                assert not a & b or _share_by_design(program, one, other), f"{one} and {other}"


def _needed_together(program: Program) -> list[set[Tensor]]:
    """For each operation: its result, and every tensor that is read by it, later, or after the program."""
    moments = []
    for position, op in enumerate(program.ops):
        known = {*program.inputs.values(), *program.uses, *(o.output for o in program.ops[:position])}
        later = {t for o in program.ops[position:] for t in o.operands()} | {*program.provides, *program.uses}
        moments.append((known & later) | {op.output})
    return moments


def _bytes_of(place: Place, offsets: dict[Tensor, int]) -> set[int]:
    item = place.root.dtype.itemsize
    start = offsets[place.root] + place.offset * item
    rows = (
        range(start + row * place.ld * item, start + (row * place.ld + place.cols) * item)
        for row in range(place.rows)
    )
    return {byte for row in rows for byte in row}


def _share_by_design(program: Program, one: Tensor, other: Tensor) -> bool:
    """Whether one of the two is made of the other by views and concatenations only."""
    makers = {op.output: op for op in program.ops}

    def sources(tensor: Tensor) -> set[Tensor]:
        maker = makers.get(tensor)
        if maker is None or maker.kind not in (*VIEWS, "concat"):
            return {tensor}
        return {tensor}.union(*(sources(operand) for operand in maker.operands()))

    return bool(sources(one) & sources(other))


@given(st.data())
def test_every_element_of_a_view_is_the_right_one(data: st.DataObject) -> None:
    """Slices and reshapes of an array, followed through places, against the same done by numpy."""
    net = Net()
    tensor = net.x(*data.draw(st.sampled_from([(6, 8), (1, 24), (4, 2, 6), (1, 4, 12), (2, 3, 2, 4)])))
    value: Array = np.arange(tensor.size).reshape(tensor.shape)
    for step in range(data.draw(st.integers(1, 4))):
        axis = data.draw(st.integers(0, len(tensor.shape) - 1))
        start = data.draw(st.integers(0, tensor.shape[axis] - 1))
        stop = data.draw(st.integers(start + 1, tensor.shape[axis]))
        tensor = net.b.slice(tensor, axis=axis, start=start, stop=stop, name=f"slice{step}")
        value = np.take(value, range(start, stop), axis)
        if data.draw(st.booleans()):
            shape = data.draw(st.sampled_from([(tensor.size,), (1, tensor.size), (tensor.size, 1)]))
            tensor, value = net.b.reshape(tensor, shape, name=f"reshape{step}"), value.reshape(shape)
    net.b.output("y", net.b.activation("relu", tensor, name="y"))
    graph = net.b.graph()
    storage = plan_storage(_programs(compile_graph(graph, FoldCache())))
    (reader,) = (
        op for op in compile_graph(graph, FoldCache()).programs[Lifetime.QUERY].ops if op.kind == "activation"
    )
    assert reader.output.shape == value.shape
    memory = {t: np.full(t.size, -1) for t in storage.buffers}
    root = next(t for t in memory if t in graph.inputs.values())
    memory[root] = np.arange(root.size)
    for copies in storage.copies.values():
        for copy in copies:
            _elements(memory, copy.target)[...] = _elements(memory, copy.source)
    (place,) = (p for t, p in storage.places.items() if t is tensor)
    assert np.array_equal(_elements(memory, place).ravel(), value.ravel())


def _elements(memory: dict[Tensor, Array], place: Place) -> Array:
    flat = memory[place.root][place.offset :]
    item = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (place.rows, place.cols), (place.ld * item, item))
