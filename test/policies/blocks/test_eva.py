from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Op
from vla_simd_ros.policies.blocks.eva import Eva, EvaConfig, rotations, windows
from vla_simd_ros.policies.weights import Weights

CONFIG = EvaConfig(
    width=8, heads=2, feedforward=6, layers=4, patch=2, window=2, global_every=2, eps=1e-6, base=100.0
)


class Zeros:
    """Weights of any name."""

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        assert expected is not None
        return expected

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        raise AssertionError("a description reads no weights")

    rows = mapped = tensor

    def check_mapped(self) -> None: ...


def test_windows_tile_the_view_and_end_at_its_border() -> None:
    found = windows(3, 5, 2)
    assert [window.tolist() for window in found] == [
        [0, 1, 5, 6],
        [2, 3, 7, 8],
        [4, 9],
        [10, 11],
        [12, 13],
        [14],
    ]


@pytest.mark.parametrize("base", [100.0, 1e4])
def test_rows_turn_the_first_half_of_the_pairs_and_columns_the_second(base: float) -> None:
    coordinates = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 2.5]])
    cos, sin = rotations(coordinates, 8, base)
    turned = cos + 1j * sin
    frequencies = np.array([1.0, base**-0.5])
    np.testing.assert_allclose(turned[0], 1.0)
    np.testing.assert_allclose(turned[1], [*np.exp(3j * frequencies), 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(turned[2], [1.0, 1.0, *np.exp(2.5j * frequencies)], rtol=1e-6)


def test_only_every_few_layers_attend_across_the_view() -> None:
    b = Builder()
    views = [b.input(f"view.{i}", (6, 10, 3), DType.F32, Lifetime.QUERY) for i in range(2)]
    x = Eva(CONFIG, Weights(Zeros(), "vision."), 6, 10).build(b, views)
    assert x.shape == (2 * 15, 8)
    b.output("x", x)

    def attended(layer: int) -> list[int]:
        ops: list[Op] = [
            op for op in b.graph().ops if op.block == f"vision.{layer}" and op.kind == "attention"
        ]
        return [op.output.shape[0] for op in ops]

    assert attended(0) == attended(2) == [4, 4, 2, 2, 2, 1] * 2
    assert attended(1) == attended(3) == [15, 15]
