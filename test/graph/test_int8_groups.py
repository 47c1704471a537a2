from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.int8_groups import (
    Int8GroupError,
    group_names,
    int8_groups,
    int8_setting,
    resolve_groups,
)
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor

RNG = np.random.default_rng(0)
WIDTH = 32


class Maker:
    """Layers of width 32 in blocks."""

    def __init__(self) -> None:
        self.b = Builder()
        self.x = self.b.input("x", (3, WIDTH), DType.F32, Lifetime.QUERY)

    def linear(self, x: Tensor, name: str, depth: int = WIDTH) -> Tensor:
        weight = RNG.normal(size=(WIDTH, depth)).astype(np.float32)
        return self.b.linear(x, self.b.constant(f"{name}.{depth}.weight", weight), name=name)

    def norm(self, x: Tensor, name: str) -> Tensor:
        ones = self.b.constant(f"{name}.ones", np.ones(WIDTH, np.float32))
        return self.b.rms_norm(x, ones, eps=1e-6, name=name)

    def conv(self, x: Tensor, name: str) -> Tensor:
        filters = RNG.normal(size=(4, 3, 3, 4)).astype(np.float32)
        return self.b.conv2d(x, self.b.constant(f"{x.name}.filters", filters), padding=1, name=name)

    def groups(self, *outputs: Tensor) -> dict[str, list[str]]:
        for output in outputs:
            self.b.output(output.name, output)
        return named(self.b.graph())


def named(graph: Graph) -> dict[str, list[str]]:
    return {name: [op.output.name for op in ops] for name, ops in int8_groups(graph.ops).items()}


def test_a_transformer_layer_is_attention_and_ffn() -> None:
    m = Maker()
    b = m.b
    with b.block("encoder.0"):
        y = m.norm(m.x, "norm1")
        both = m.linear(y, "q+k")
        # What a merged layer, rotary positions and a norm of the queries put in between.
        q = b.add(b.slice(both, axis=1, start=0, stop=WIDTH, name="qk"), m.x, name="rotated")
        y = b.attention(m.norm(q, "q_norm"), both, m.linear(y, "v"), heads=4, scale=1.0, name="attention")
        y = b.reshape(b.reshape(y, (WIDTH, 3), name="t"), (3, WIDTH), name="u")
        y = b.add(m.x, m.linear(y, "out"), name="skip")
        z = m.linear(b.activation("relu", m.linear(m.norm(y, "norm2"), "up"), name="relu"), "down")
    assert m.groups(z) == {
        "encoder.attention": ["encoder.0.q+k", "encoder.0.v", "encoder.0.out"],
        "encoder.ffn": ["encoder.0.up", "encoder.0.down"],
    }


def test_attention_without_a_last_projection_does_not_claim_the_ffn() -> None:
    m = Maker()
    with m.b.block("encoder.0"):
        y = m.b.attention(m.linear(m.x, "q"), m.x, m.x, heads=4, scale=1.0, name="attention")
        y = m.linear(m.norm(y, "norm"), "up")
    assert m.groups(y) == {"encoder.attention": ["encoder.0.q"], "encoder.ffn": ["encoder.0.up"]}


def test_another_blocks_layer_is_not_part_of_an_attention() -> None:
    m = Maker()
    with m.b.block("tokens"):
        tokens = m.linear(m.x, "project")
    with m.b.block("decoder.0"):
        y = m.b.attention(tokens, tokens, tokens, heads=4, scale=1.0, name="attention")
    with m.b.block("head"):
        y = m.linear(y, "actions")
    assert m.groups(y) == {"tokens": ["tokens.project"], "head": ["head.actions"]}


def test_convolutions_of_all_cameras_are_one_group() -> None:
    m = Maker()
    maps = []
    for camera in ("front", "wrist"):
        image = m.b.input(camera, (5, 5, 4), DType.F32, Lifetime.QUERY)
        with m.b.block(f"backbone.{camera}.stem"):
            maps.append(m.conv(image, "conv"))
    assert m.groups(*maps) == {"backbone.conv": ["backbone.front.stem.conv", "backbone.wrist.stem.conv"]}


def test_linear_layers_beside_convolutions_are_a_group_of_their_own() -> None:
    m = Maker()
    image = m.b.input("image", (5, 5, 4), DType.F32, Lifetime.QUERY)
    with m.b.block("unet.down.0"):
        outputs = m.conv(image, "conv"), m.linear(m.x, "film")
    assert list(m.groups(*outputs)) == ["unet.conv", "unet.linear"]


def test_layers_outside_any_block_are_named_by_what_they_do() -> None:
    m = Maker()
    image = m.b.input("image", (5, 5, 4), DType.F32, Lifetime.QUERY)
    assert list(m.groups(m.conv(image, "conv"), m.linear(m.x, "layer"))) == ["conv", "linear"]
    m = Maker()
    assert list(m.groups(m.linear(m.x, "layer"))) == ["linear"]


def test_what_cannot_be_in_int8_is_in_no_group() -> None:
    m = Maker()
    b = m.b
    text = b.input("text", (3, WIDTH), DType.F32, Lifetime.EPISODE)
    state = b.input("state", (1, WIDTH - 1), DType.F32, Lifetime.QUERY)
    with b.block("text.0"):
        encoded = m.linear(text, "per_episode")
    with b.block("tokens"):
        short = m.linear(state, "too_short", WIDTH - 1)
        weight = m.linear(m.x, "weight")
        computed = b.linear(m.x, weight, name="computed_weight")
    assert m.groups(encoded, short, computed) == {"tokens": ["tokens.weight"]}


GROUPS = {"backbone.conv": 0, "encoder.attention": 0, "encoder.ffn": 0, "head": 0}


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((), ()),
        (("all",), tuple(GROUPS)),
        (("head", "encoder.ffn"), ("encoder.ffn", "head")),
        (("encoder",), ("encoder.attention", "encoder.ffn")),
        (("encoder", "encoder.ffn", "all"), tuple(GROUPS)),
    ],
)
def test_names_stand_for_groups_in_the_policys_order(names: Sequence[str], chosen: tuple[str, ...]) -> None:
    assert resolve_groups(names, GROUPS) == chosen


@pytest.mark.parametrize("name", ["enc", "encoder.", "encoder.ff", "text", "ALL"])
def test_an_unknown_group_is_refused_with_the_groups_there_are(name: str) -> None:
    with pytest.raises(Int8GroupError) as error:
        resolve_groups(["head", name], GROUPS)
    expected = f"int8 group '{name}' is unknown, this policy has: {', '.join(GROUPS)}, all"
    assert str(error.value) == expected


def test_a_policy_without_groups_still_has_all() -> None:
    assert resolve_groups(["all"], {}) == ()


def test_settings_are_texts_with_commas_or_sequences() -> None:
    assert group_names("") == ()
    assert group_names(" encoder.ffn,head ,,head") == ("encoder.ffn", "head")
    assert group_names(["head", "encoder"]) == ("head", "encoder")


@pytest.mark.parametrize(
    ("precision", "names", "setting"),
    [("fp32", "", ""), ("fp32", "head", "head"), ("int8", "", "all"), ("int8", "all", "all")],
)
def test_a_precision_of_everything_is_all_groups(precision: str, names: str, setting: str) -> None:
    assert int8_setting(precision, names) == setting


def test_a_precision_of_everything_and_single_groups_contradict() -> None:
    with pytest.raises(Int8GroupError, match="precision is int8 and int8 is 'head', expected one of the two"):
        int8_setting("int8", "head")
