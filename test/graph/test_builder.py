from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Lifetime

ONES = np.ones((2, 4), np.float32)


def test_names_and_blocks_follow_the_nesting() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    with b.block("encoder.0"):
        y = b.linear(x, b.constant("w", ONES), name="self_attn.q")
        with b.block("encoder.1"):
            z = b.activation("relu", y, name="relu")
        last = b.activation("tanh", z, name="tanh")
    assert [t.name for t in (y, z, last)] == ["encoder.0.self_attn.q", "encoder.1.relu", "encoder.0.tanh"]
    assert [t.block for t in (y, z, last)] == ["encoder.0", "encoder.1", "encoder.0"]


def test_a_result_lives_as_long_as_its_shortest_lived_operand() -> None:
    b = Builder()
    text = b.input("text", (3, 4), DType.F32, Lifetime.EPISODE)
    noise = b.input("noise", (3, 4), DType.F32, Lifetime.STEP)
    table = b.constant("table", np.ones((3, 4), np.float32))
    assert b.activation("relu", table, name="a").lifetime is Lifetime.PROCESS
    assert b.add(text, table, name="b").lifetime is Lifetime.EPISODE
    assert b.add(table, noise, name="c").lifetime is Lifetime.STEP


def test_names_are_unique() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    b.activation("relu", x, name="y")
    with pytest.raises(GraphError, match="the name 'y' is used twice"):
        b.activation("tanh", x, name="y")
    with pytest.raises(GraphError, match="the name 'x' is used twice"):
        b.constant("x", ONES)
    b.output("out", x)
    with pytest.raises(GraphError, match="output 'out' is declared twice"):
        b.output("out", x)


def test_misfits_name_the_operation_and_its_operands() -> None:
    b = Builder()
    x = b.input("tokens", (634, 512), DType.F32, Lifetime.QUERY)
    with b.block("encoder.0"), pytest.raises(GraphError) as error:
        b.linear(x, b.constant("model.w", np.ones((512, 256), np.float32)), name="q")
    assert str(error.value) == (
        "linear 'encoder.0.q': x 'tokens' is [634, 512] float32, weight 'model.w' is [512, 256] float32; "
        "expected x [M, K] and weight [N, K]"
    )


def test_a_window_that_is_none_names_the_convolution() -> None:
    b = Builder()
    x = b.input("x", (4, 4, 3), DType.F32, Lifetime.QUERY)
    weight = b.constant("w", np.ones((2, 1, 3, 3), np.float32))
    with (
        b.block("stem"),
        pytest.raises(GraphError, match=r"conv2d 'stem.conv': stride \(1,\); expected a number"),
    ):
        b.conv2d(x, weight, stride=(1,), name="conv")  # type: ignore[arg-type]


def test_windows_alike_on_both_axes_are_numbers() -> None:
    b = Builder()
    x = b.input("x", (4, 4, 3), DType.F32, Lifetime.QUERY)
    weight = b.constant("w", np.ones((2, 1, 3, 3), np.float32))
    for name, padding in (("a", 1), ("b", ((1, 1), (1, 1)))):
        b.output(name, b.conv2d(x, weight, stride=(2, 2), padding=padding, name=name))
    attrs = [op.attrs for op in b.graph().ops]
    assert attrs[0] == attrs[1] == {"stride": 2, "padding": 1, "dilation": 1, "activation": "none"}


def test_the_same_array_is_one_constant() -> None:
    b = Builder()
    assert b.constant("w", ONES) is b.constant("w again", ONES)
    assert b.constant("copy", ONES.copy()) is not b.constant("w", ONES)


def test_constants_have_a_type_that_the_graph_knows() -> None:
    b = Builder()
    assert b.constant("ids", np.arange(3, dtype=np.int32)).dtype is DType.I32
    with pytest.raises(GraphError, match="constant 'w' is float64, expected one of float32, uint8, int32"):
        b.constant("w", np.ones(3))


def test_inputs_are_set_at_run_time() -> None:
    with pytest.raises(GraphError, match="input 'x' has lifetime PROCESS, expected EPISODE, QUERY or STEP"):
        Builder().input("x", (1, 2), DType.F32, Lifetime.PROCESS)


def test_views_of_the_whole_add_nothing() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    assert b.concat([x], axis=0, name="c") is x
    assert b.transpose(x, (0, 1), name="t") is x
    image = b.input("image", (3, 4, 2), DType.F32, Lifetime.QUERY)
    assert b.resize(image, 3, 4, name="r") is image
    assert b.slice(x, axis=1, start=0, stop=4, name="s") is x
    with pytest.raises(GraphError, match="expected an axis of the input, got 2"):
        b.slice(x, axis=2, start=0, stop=4, name="t")


def test_a_graph_needs_an_output() -> None:
    with pytest.raises(GraphError, match="the graph has no output"):
        Builder().graph()
