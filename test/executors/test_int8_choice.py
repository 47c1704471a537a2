from __future__ import annotations

import logging

import numpy as np
import pytest

from vla_simd_ros.executors.int8_choice import Int8Choice, choose_int8
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.int8 import precision_of
from vla_simd_ros.graph.int8_groups import Int8GroupError, int8_groups
from vla_simd_ros.graph.ir import DType, Lifetime, Op

RNG = np.random.default_rng(0)


def layers() -> list[Op]:
    """Two equal layers in "encoder", then one of another width there, and one in "head"."""
    b = Builder()
    x = b.input("x", (3, 32), DType.F32, Lifetime.QUERY)
    for block, name, width in (("encoder.0", "a", 32), ("encoder.1", "b", 32), ("encoder.2", "c", 48)):
        with b.block(block):
            weight = b.constant(f"{name}.w", RNG.normal(size=(width, 32)).astype(np.float32))
            y = b.linear(x, weight, name=name)
            x = y if width == 32 else x
    with b.block("head"):
        y = b.linear(y, b.constant("h.w", RNG.normal(size=(6, 48)).astype(np.float32)), name="actions")
    b.output("action", y)
    return b.graph().ops


class Clock:
    """An executor whose times follow from width and precision, and which notes what it was asked."""

    def __init__(self, int8: dict[int, float]) -> None:
        self.int8 = int8
        self.asked: list[tuple[int, str]] = []

    def time_ms(self, op: Op) -> float:
        width, precision = op.output.shape[1], precision_of(op.attrs)
        self.asked.append((width, precision))
        return self.int8[width] if precision == "int8" else 1.0


def test_names_are_resolved_without_timing() -> None:
    ops = layers()
    assert choose_int8("head", ops, object()) == ("head",)
    assert choose_int8(["all"], ops, object()) == ("encoder", "head")
    assert choose_int8("", ops, object()) == ()


def test_auto_keeps_what_is_faster() -> None:
    clock = Clock({32: 0.5, 48: 0.6, 6: 1.5})
    assert choose_int8("auto", layers(), clock) == ("encoder",)
    assert clock.asked == [(w, p) for w in (32, 48, 6) for p in ("fp32", "int8")], "each shape once"


@pytest.mark.parametrize(("int8", "chosen"), [(0.94, ("encoder", "head")), (0.96, ())])
def test_less_precision_must_pay(int8: float, chosen: tuple[str, ...]) -> None:
    assert choose_int8("auto", layers(), Clock({32: int8, 48: int8, 6: int8})) == chosen


def test_a_group_is_judged_by_the_sum_of_its_layers() -> None:
    """Two layers save 0.3 ms each, one loses 0.5 ms."""
    assert "encoder" not in choose_int8("auto", layers(), Clock({32: 0.7, 48: 1.5, 6: 1.0}))
    assert "encoder" in choose_int8("auto", layers(), Clock({32: 0.6, 48: 1.5, 6: 1.0}))


def test_the_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vla_simd_ros"):
        Int8Choice(Clock({32: 0.5, 48: 0.5, 6: 2.0}).time_ms).faster(int8_groups(layers()))
    assert caplog.messages == [
        "int8 auto, encoder: int8 of fp32 3.000 ms, int8 1.500 ms",
        "int8 auto, head: fp32 of fp32 1.000 ms, int8 2.000 ms",
    ]


def test_auto_stands_alone() -> None:
    with pytest.raises(Int8GroupError, match="int8 is 'auto,head', expected 'auto' alone or names"):
        choose_int8("auto,head", layers(), Clock({}))


def test_auto_needs_an_executor_with_a_clock() -> None:
    with pytest.raises(Int8GroupError, match="expected names of groups: this executor times nothing"):
        choose_int8("auto", layers(), object())


def test_unknown_groups_are_refused() -> None:
    with pytest.raises(Int8GroupError, match="'decoder' is unknown, this policy has: encoder, head, all"):
        choose_int8("decoder", layers(), object())


def test_the_engine_times_an_operation() -> None:
    executor = SimdExecutor(isa="portable", threads=1)
    wide, *_, narrow = layers()
    assert executor.time_ms(wide) > 0
    assert executor.time_ms(narrow) > 0
