from __future__ import annotations

import hashlib

import numpy as np
import pytest

from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker


def test_a_seed_and_a_name_are_always_the_same_values() -> None:
    """Golden files depend on it: these bytes must never change."""
    values = WeightMaker(7).draw("model.head.weight", (3, 5), -1, 1)

    digest = hashlib.sha256(values.tobytes()).hexdigest()
    assert digest == "aafd6d1297ed203d19ab9f148820a0289c4cbbfce8c7d565f64d4786fa7370dd"


def test_names_and_seeds_differ() -> None:
    a = WeightMaker(1).draw("a", (100,), 0, 1)

    assert not np.array_equal(a, WeightMaker(1).draw("b", (100,), 0, 1))
    assert not np.array_equal(a, WeightMaker(2).draw("a", (100,), 0, 1))


def test_values_do_not_depend_on_what_was_made_before() -> None:
    first, second = WeightMaker(1), WeightMaker(1)
    second.linear("other", 4, 4)
    for make in (first, second):
        make.attention("layer", 8)

    np.testing.assert_array_equal(
        first.tensors["layer.in_proj_weight"], second.tensors["layer.in_proj_weight"]
    )


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    values = WeightMaker(0).draw("x", shape, 2, 3)

    assert values.shape == shape
    assert values.dtype == np.float32
    assert (values >= 2).all()
    assert (values < 3).all()


def test_spread_has_the_deviation_asked_for() -> None:
    make = WeightMaker(0)
    make.spread("x", (100_000,), 0.25)

    assert make.tensors["x"].std() == pytest.approx(0.25, rel=0.01)
    assert make.tensors["x"].mean() == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize("shape", [(1 << 49,), (10**9, 10**9), (10**30, 2)])
def test_what_no_machine_can_hold_is_not_tried(shape: tuple[int, ...]) -> None:
    with pytest.raises(MemoryError, match=r"tensor 'a\.weight' of shape \["):
        WeightMaker(1).uniform("a.weight", shape, 1.0)
