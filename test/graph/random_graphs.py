"""Random small graphs over all operations and lifetimes, and the comparison of two graphs' results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.shapes import ACTIVATIONS as EVERY_ACTIVATION
from vla_simd_ros.graph.shapes import infer

# Large enough that a norm does not blow rounding errors up.
EPS = 0.1
# Not the exponential function, which soon leaves the range of float32.
ACTIVATIONS = tuple(fn for fn in EVERY_ACTIVATION if fn != "exp")


class GraphMaker:
    """Adds random operations to a builder; every choice is drawn by hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.b = Builder()
        self.count = 0
        self.inputs: dict[str, Array] = {}
        self.pool: list[Tensor] = []
        for lifetime in (Lifetime.EPISODE, Lifetime.QUERY, Lifetime.STEP):
            self.pool.append(self.runtime_input(lifetime, (3, 4)))
        self.pool += [self.constant(3, 4), self.constant(1, 4), self.runtime_input(Lifetime.QUERY, (1, 4))]
        self.given = len(self.pool)

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def constant(self, *shape: int) -> Tensor:
        return self.b.constant(self.name("c"), self.rng.normal(size=shape).astype(np.float32))

    def runtime_input(self, lifetime: Lifetime, shape: tuple[int, ...]) -> Tensor:
        name = self.name(f"input.{lifetime.name}")
        self.inputs[name] = self.rng.normal(size=shape).astype(np.float32)
        return self.b.input(name, shape, DType.F32, lifetime)

    def pick(self, accept: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        fitting = [t for t in self.pool if accept(t)]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def same_shape(self, x: Tensor) -> Tensor:
        other = self.pick(lambda t: t.shape == x.shape)
        assert other is not None
        return other

    def step(self) -> None:
        """Add one operation, or a few that belong together."""
        kinds = [
            self.linear, self.chain, self.chain, self.shared_linears, self.add, self.add, self.vector_add,
            self.binary, self.activation, self.norm, self.film, self.concat, self.slice, self.reshape,
            self.attention, self.mean, self.batch_norm, self.image, self.lookup,
        ]  # fmt: skip
        x = self.pick()
        assert x is not None
        self.draw(st.sampled_from(kinds))(x)

    def linear(self, x: Tensor, width: int | None = None) -> Tensor:
        outputs = width or self.draw(st.sampled_from((2, 4)))
        bias = self.constant(outputs) if self.draw(st.booleans()) else None
        y = self.b.linear(x, self.constant(outputs, x.shape[1]), bias, name=self.name("linear"))
        self.pool.append(y)
        return y

    def chain(self, x: Tensor) -> None:
        """A linear layer and what could become its epilogue, in any order and lifetime."""
        y = self.linear(x, 4)
        for _ in range(self.draw(st.integers(1, 4))):
            kind = self.draw(st.sampled_from((self.add, self.vector_add, self.activation, self.film)))
            kind(y)
            y = self.pool[-1]

    def shared_linears(self, x: Tensor) -> None:
        """Several linear layers of one input, the input of some of them with something added."""
        sources = [x, self.b.add(x, self.same_shape(x), name=self.name("positioned"))]
        row = self.pick(lambda t: t.shape == (1, x.shape[1]))
        if row is not None:
            sources.append(self.b.add(x, row, name=self.name("positioned")))
        for _ in range(3):
            self.linear(self.draw(st.sampled_from(sources)))

    def add(self, x: Tensor) -> None:
        self.pool.append(self.b.add(x, self.same_shape(x), name=self.name("add")))

    def vector_add(self, x: Tensor) -> None:
        vector = self.pick(lambda t: t.shape == (1, x.shape[1]))
        if vector is None or self.draw(st.booleans()):
            vector = self.constant(x.shape[1])
        self.pool.append(self.b.add(x, vector, name=self.name("add")))

    def binary(self, x: Tensor) -> None:
        op = self.draw(st.sampled_from(("sub", "mul", "min", "max")))
        self.pool.append(self.b.binary(op, x, self.same_shape(x), name=self.name(op)))

    def activation(self, x: Tensor) -> None:
        fn = self.draw(st.sampled_from(ACTIVATIONS))
        self.pool.append(self.b.activation(fn, x, name=self.name(fn)))

    def norm(self, x: Tensor) -> None:
        weight, bias = self.constant(x.shape[1]), self.constant(x.shape[1])
        if self.draw(st.booleans()):
            y = self.b.layer_norm(x, weight, bias, eps=EPS, name=self.name("layer_norm"))
        else:
            y = self.b.rms_norm(x, weight, eps=EPS, name=self.name("rms_norm"))
        self.pool.append(y)

    def film(self, x: Tensor) -> None:
        row = self.pick(lambda t: t.shape == (1, x.shape[1]))
        gamma = row if row is not None else self.constant(x.shape[1])
        self.pool.append(self.b.film(x, gamma, self.constant(x.shape[1]), name=self.name("film")))

    def concat(self, x: Tensor) -> None:
        axis = self.draw(st.integers(0, 1))
        other = self.pick(lambda t: t.shape[1 - axis] == x.shape[1 - axis])
        assert other is not None
        if x.shape[axis] + other.shape[axis] <= 8:
            self.pool.append(self.b.concat([x, other], axis=axis, name=self.name("concat")))

    def slice(self, x: Tensor) -> None:
        axis = self.draw(st.integers(0, 1))
        stop = self.draw(st.integers(1, x.shape[axis]))
        start = self.draw(st.integers(0, stop - 1))
        self.pool.append(self.b.slice(x, axis=axis, start=start, stop=stop, name=self.name("slice")))

    def reshape(self, x: Tensor) -> None:
        self.pool.append(self.b.reshape(x, (x.shape[1], x.shape[0]), name=self.name("reshape")))

    def attention(self, x: Tensor) -> None:
        q, k, v = self.linear(x, 4), self.linear(x, 4), self.linear(x, 4)
        heads = self.draw(st.sampled_from((1, 2)))
        biases = self.draw(st.sampled_from((0, 1, heads)))
        bias = self.constant(biases, x.shape[0], x.shape[0]) if biases else None
        y = self.b.attention(q, k, v, bias, heads=heads, scale=0.7, name=self.name("attention"))
        self.pool.append(y)

    def lookup(self, _: Tensor) -> None:
        """Rows of a table, and what is computed from them."""
        name = self.name("ids")
        self.inputs[name] = self.rng.integers(0, 4, 3).astype(np.int32)
        ids = self.b.input(name, (3,), DType.I32, Lifetime.STEP)
        self.chain(self.b.embedding(self.constant(4, 4), ids, name=self.name("embedding")))

    def group_norm(self, x: Tensor) -> None:
        width = x.shape[1]
        groups = self.draw(st.sampled_from([n for n in (1, 2, 3) if width % n == 0]))
        weight, bias = self.constant(width), self.constant(width)
        name = self.name("group_norm")
        y = self.b.group_norm(x, weight, bias, groups=groups, eps=EPS, name=name)
        self.pool.append(y)
        if self.draw(st.booleans()):
            self.activation(y)

    def softmax(self, x: Tensor) -> None:
        self.pool.append(self.b.softmax(x, name=self.name("softmax")))

    def rotary(self, x: Tensor) -> None:
        if x.shape[1] % 2 == 0:
            cos, sin = (self.constant(x.shape[0], x.shape[1] // 2) for _ in range(2))
            self.pool.append(self.b.rotary(x, cos, sin, heads=1, name=self.name("rotary")))

    def transpose(self, x: Tensor) -> None:
        self.pool.append(self.b.transpose(x, (1, 0), name=self.name("transpose")))

    def rows(self, x: Tensor) -> None:
        """Some rows of a computed table."""
        count = self.draw(st.integers(1, 4))
        ids = self.b.constant(self.name("c"), self.rng.integers(0, x.shape[0], count, dtype=np.int32))
        self.pool.append(self.b.embedding(x, ids, name=self.name("rows")))

    def column(self, x: Tensor) -> None:
        """One value added to each row, or one to all."""
        shape = self.draw(st.sampled_from(((1,), (x.shape[0], 1))))
        self.pool.append(self.b.add(x, self.constant(*shape), name=self.name("add")))

    def mean(self, x: Tensor) -> None:
        self.pool.append(self.b.mean_rows(x, name=self.name("mean")))

    def normed(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        var = self.b.constant(self.name("c"), self.rng.uniform(0.5, 2, width).astype(np.float32))
        parameters = [self.constant(width) for _ in range(3)]
        return self.b.batch_norm(x, *parameters, var, eps=1e-5, name=self.name("batch_norm"))

    def batch_norm(self, x: Tensor) -> None:
        source = self.linear(x) if self.draw(st.booleans()) else x
        self.pool.append(self.normed(source))

    def image(self, x: Tensor) -> None:
        """A residual block on a camera image, its pixels as rows."""
        name = self.name("image")
        self.inputs[name] = self.rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)
        given = self.b.input(name, (5, 6, 3), DType.U8, Lifetime.QUERY)
        divisor = self.b.constant(self.name("c"), self.rng.uniform(0.5, 2, 3).astype(np.float32))
        y = self.b.normalize_image(given, self.constant(3), divisor, name=self.name("normalized"))
        stride, dilation = self.draw(st.sampled_from(((1, 1), (2, 1), (1, 2))))
        y = self.b.conv2d(
            y, self.constant(4, 3, 3, 3), stride=stride, padding=1, dilation=dilation, name=self.name("conv")
        )
        y = self.b.activation("relu", self.normed(y), name=self.name("relu"))
        z = self.b.conv2d(y, self.constant(4, 3, 3, 4), padding=1, name=self.name("conv"))
        z = self.b.add(self.normed(z), y, name=self.name("sum"))
        z = self.b.activation("relu", z, name=self.name("relu"))
        gamma = self.pick(lambda t: t.shape == (1, 4))
        assert gamma is not None
        z = self.b.film(z, gamma, self.constant(4), name=self.name("film"))
        z = self.b.max_pool2d(z, kernel=3, stride=3, padding=1, name=self.name("pool"))
        self.pool.append(self.b.reshape(z, (z.shape[0] * z.shape[1], 4), name=self.name("pixels")))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, Array]]:
    """A graph of a few operations with one to three outputs, and values for its inputs."""
    maker = GraphMaker(draw)
    for _ in range(draw(st.integers(1, 9))):
        maker.step()
    computed = maker.pool[maker.given :] or maker.pool
    for index in range(draw(st.integers(1, 3))):
        maker.b.output(f"out{index}", draw(st.sampled_from(computed[-4:])))
    return maker.b.graph(), maker.inputs


def assert_same_results(before: Graph, after: Graph, inputs: dict[str, Array], tolerance: float) -> None:
    """Both graphs are well formed and compute the same outputs, living as long."""
    assert_well_formed(after)
    assert after.outputs.keys() == before.outputs.keys()
    old, new = run_graph(before, inputs), run_graph(after, inputs)
    for name, tensor in before.outputs.items():
        assert after.outputs[name].lifetime == tensor.lifetime
        assert_close(new[after.outputs[name]], old[tensor], tolerance)


def assert_close(got: Array, expected: Array, tolerance: float) -> None:
    """Equal up to ``tolerance`` of the largest expected value (or of 1 where all are smaller)."""
    assert got.shape == expected.shape
    bound = tolerance * max(1.0, float(np.abs(expected).max()))
    assert float(np.abs(got - expected).max()) <= bound


def assert_well_formed(graph: Graph) -> None:
    """Operands are defined before use, results have the inferred shape, and constants their own."""
    defined = {*graph.inputs.values(), *graph.constants}
    for tensor, value in graph.constants.items():
        assert value.shape == tensor.shape and value.dtype == tensor.dtype.numpy
    for op in graph.ops:
        assert defined.issuperset(op.operands()), f"{op.output} uses what is not defined yet"
        assert infer(op.kind, op.inputs, op.attrs) == (op.output.shape, op.output.dtype)
        assert op.output.lifetime >= max(t.lifetime for t in op.operands())
        defined.add(op.output)
    assert defined.issuperset(graph.outputs.values())
