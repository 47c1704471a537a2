"""Single kernels can be timed."""

from __future__ import annotations

import pytest

from vla_simd_ros.executors.engine_probe import KernelProbe, KernelTime
from vla_simd_ros.executors.simd_executor import SimdExecutor


@pytest.fixture
def probe() -> KernelProbe:
    return KernelProbe(SimdExecutor(threads=1), repeats=2)


def test_each_kind_has_a_time_and_a_rate(probe: KernelProbe) -> None:
    times = {
        "linear": (probe.linear(13, 40, 24), 13 * 40 * (2 * 24 + 1)),
        "conv2d": (probe.conv2d(9, 8, 4, 16), 2 * 9 * 8 * 16 * 36),
        "attention": (probe.attention(10, 12, 2, 8), None),
    }
    for kind, (time, flops) in times.items():
        assert isinstance(time, KernelTime)
        assert time.kernel.startswith(f"{kind}_")
        assert time.ms > 0 and time.gflops_per_s > 0
        if flops is not None:
            assert time.gflops_per_s == pytest.approx(flops / time.ms / 1e6)


def test_strides_shrink_the_work(probe: KernelProbe) -> None:
    time = probe.conv2d(8, 8, 3, 4, kernel=1, stride=2)
    assert time.gflops_per_s == pytest.approx(2 * 4 * 4 * 4 * 3 / time.ms / 1e6)
