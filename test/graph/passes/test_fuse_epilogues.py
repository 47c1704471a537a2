from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime, Op, Tensor
from vla_simd_ros.graph.passes.fuse_epilogues import fuse_epilogues


def constant(b: Builder, name: str, *shape: int) -> Tensor:
    return b.constant(name, np.ones(shape, np.float32))


def rows(b: Builder, name: str, lifetime: Lifetime = Lifetime.QUERY, count: int = 3) -> Tensor:
    return b.input(name, (count, 4), DType.F32, lifetime)


def layer(b: Builder, x: Tensor, name: str = "layer") -> Tensor:
    return b.linear(x, constant(b, f"{name}.w", 4, 4), constant(b, f"{name}.b", 4), name=name)


def fused(b: Builder, y: Tensor) -> list[Op]:
    b.output("y", y)
    return fuse_epilogues(b.graph()).ops


def test_a_residual_block_becomes_two_convolutions() -> None:
    b = Builder()
    x = b.input("x", (5, 5, 4), DType.F32, Lifetime.QUERY)
    y = b.conv2d(x, constant(b, "w", 4, 3, 3, 4), padding=1, name="conv1")
    y = b.activation("relu", b.add(y, constant(b, "bias1", 4), name="sum1"), name="relu1")
    z = b.conv2d(y, constant(b, "v", 4, 3, 3, 4), padding=1, name="conv2")
    z = b.activation("relu", b.add(z, x, name="sum2"), name="relu2")
    gamma = b.input("gamma", (1, 4), DType.F32, Lifetime.EPISODE)
    ops = fused(b, b.film(z, gamma, constant(b, "beta", 4), name="film"))
    assert [(op.kind, op.attrs["activation"]) for op in ops] == [("conv2d", "relu"), ("conv2d", "relu")]
    assert [t and t.name for t in ops[0].inputs] == ["x", "w", "bias1", None, None, None]
    assert [t and t.name for t in ops[1].inputs] == ["relu1", "v", None, "x", "gamma", "beta"]
    assert ops[1].output.name == "film"


def test_two_layers_added_fuse_into_one_of_them() -> None:
    b = Builder()
    x = rows(b, "x")
    ops = fused(b, b.add(layer(b, x, "one"), layer(b, x, "two"), name="sum"))
    assert len(ops) == 2
    assert ops[1].inputs[3] is ops[0].output


def test_a_constant_vector_joins_the_bias() -> None:
    b = Builder()
    ops = fused(b, b.add(layer(b, rows(b, "x")), constant(b, "v", 1, 4), name="sum"))
    assert [op.kind for op in ops] == ["reshape", "binary", "linear"]
    assert ops[2].inputs[2] is ops[1].output


def test_a_runtime_vector_becomes_a_one_row_residual() -> None:
    b = Builder()
    ops = fused(b, b.add(layer(b, rows(b, "x")), rows(b, "v", count=1), name="sum"))
    assert [op.kind for op in ops] == ["linear"]
    assert ops[0].inputs[3] is not None and ops[0].inputs[3].shape == (1, 4)


@pytest.mark.parametrize("extra_reader", ["output", "operation"])
def test_a_result_with_other_readers_stays(extra_reader: str) -> None:
    b = Builder()
    y = layer(b, rows(b, "x"))
    relu = b.activation("relu", y, name="relu")
    if extra_reader == "output":
        b.output("raw", y)
    else:
        b.output("other", b.activation("tanh", y, name="tanh"))
    kinds = [op.kind for op in fused(b, relu)]
    assert kinds.count("activation") == (1 if extra_reader == "output" else 2)


def test_an_episode_layer_is_not_pulled_into_the_query() -> None:
    b = Builder()
    text = layer(b, rows(b, "text", Lifetime.EPISODE))
    ops = fused(b, b.add(text, rows(b, "x"), name="sum"))
    assert [(op.kind, op.output.lifetime) for op in ops] == [
        ("linear", Lifetime.EPISODE),
        ("binary", Lifetime.QUERY),
    ]


def test_the_order_of_an_epilogue_is_kept() -> None:
    """Nothing that an epilogue does earlier may be fused after what it does later."""
    b = Builder()
    y = b.activation("relu", layer(b, rows(b, "x")), name="relu")
    y = b.add(y, rows(b, "r"), name="after_relu")
    assert [op.kind for op in fused(b, y)] == ["linear", "binary"]
    b = Builder()
    y = b.film(layer(b, rows(b, "x")), constant(b, "g", 4), constant(b, "h", 4), name="film")
    assert [op.kind for op in fused(b, b.activation("relu", y, name="relu"))] == ["linear", "activation"]


def test_other_arithmetic_is_not_fused() -> None:
    b = Builder()
    y = b.binary("mul", layer(b, rows(b, "x")), rows(b, "r"), name="product")
    assert [op.kind for op in fused(b, y)] == ["linear", "binary"]


@pytest.mark.parametrize("shape", [(1,), (3, 1)])
def test_what_is_no_row_is_added_on_its_own(shape: tuple[int, ...]) -> None:
    b = Builder()
    ops = fused(b, b.add(layer(b, rows(b, "x")), constant(b, "v", *shape), name="sum"))
    assert [op.kind for op in ops] == ["linear", "binary"]


@pytest.mark.parametrize("fn", ["mish", "sigmoid", "exp"])
def test_every_activation_fits_into_an_epilogue(fn: str) -> None:
    b = Builder()
    (op,) = fused(b, b.activation(fn, layer(b, rows(b, "x")), name="y"))
    assert (op.kind, op.attrs["activation"]) == ("linear", fn)


def test_a_group_norm_takes_one_activation() -> None:
    b = Builder()
    x = b.group_norm(rows(b, "x"), constant(b, "w", 4), constant(b, "b", 4), groups=2, eps=1e-5, name="norm")
    ops = fused(b, b.activation("relu", b.activation("mish", x, name="mish"), name="relu"))
    assert [(op.kind, op.output.name) for op in ops] == [("group_norm", "mish"), ("activation", "relu")]
    assert ops[0].attrs == {"groups": 2, "eps": 1e-5, "activation": "mish"}


def test_a_group_norm_takes_nothing_else() -> None:
    b = Builder()
    x = b.group_norm(rows(b, "x"), constant(b, "w", 4), constant(b, "b", 4), groups=2, eps=1e-5, name="norm")
    y = b.add(x, rows(b, "y"), name="sum")
    ops = fused(b, b.film(y, constant(b, "gamma", 4), constant(b, "beta", 4), name="film"))
    assert [op.kind for op in ops] == ["group_norm", "binary", "film"]
