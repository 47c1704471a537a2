"""Products of integers in PyTorch against numpy's of double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.graph.int8 import quantize, quantize_weight

pytestmark = pytest.mark.needs_torch

RNG = np.random.default_rng(3)


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("length", [7, 1040, 1041, 5000])
def test_sums_are_exact_however_long(torch: Any, length: int) -> None:
    """All values of the largest magnitude: the sums are as large as they can be."""
    from vla_simd_ros.executors.torch_int8 import int8_linear, int8_weight

    x = np.sign(drawn(3, length)) * np.float32(127)
    weight = np.sign(drawn(5, length)) * np.float32(127)
    x[0] = weight[0]
    weight[1, ::2] = 1
    got = int8_linear(torch.from_numpy(x), int8_weight(torch.from_numpy(weight), torch.float32)).numpy()
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_array_equal(got, expected.astype(np.float32))


def test_rows_and_channels_have_scales_of_their_own(torch: Any) -> None:
    from vla_simd_ros.executors.torch_int8 import int8_linear, int8_weight

    x, weight = drawn(4, 33) * np.float32([[1], [100], [0], [1e-3]]), drawn(6, 33)
    (x_q, x_scale), (w_q, w_scale) = quantize(x, (1,)), quantize_weight(weight)
    expected = (x_q @ w_q.T).astype(np.float32) * (x_scale * w_scale.T)
    got = int8_linear(torch.from_numpy(x), int8_weight(torch.from_numpy(weight), torch.float32)).numpy()
    np.testing.assert_allclose(got, expected, rtol=3e-7)
    assert not got[2].any()


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [((1, 1), (1, 1), 0, (1, 1)), ((3, 3), (2, 1), (1, 0), (1, 2)), ((7, 7), (2, 2), (3, 3), (1, 1))],
)
def test_convolutions_are_those_of_the_integers(
    torch: Any, kernel: tuple[int, int], stride: Any, padding: Any, dilation: Any
) -> None:
    from vla_simd_ros.executors.torch_int8 import int8_conv2d, int8_weight

    x, weight = drawn(1, 40, 13, 17), drawn(8, 40, *kernel)
    (x_q, x_scale), (w_q, w_scale) = quantize(x, (1, 2, 3)), quantize_weight(weight)
    sums = torch.nn.functional.conv2d(
        torch.from_numpy(x_q), torch.from_numpy(w_q), stride=stride, padding=padding, dilation=dilation
    ).numpy()
    expected = np.rint(sums).astype(np.float32) * (x_scale * w_scale.reshape(1, -1, 1, 1))
    weights = int8_weight(torch.from_numpy(weight), torch.float32)
    got = int8_conv2d(torch.from_numpy(x), weights, stride, padding, dilation).numpy()
    np.testing.assert_allclose(got, expected, rtol=3e-7)
