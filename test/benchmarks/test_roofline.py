from __future__ import annotations

from dataclasses import replace

import pytest
from rooflines import ROUND

from vla_simd_ros.benchmarks.roofline import measure_roofline, peak_now, roofline_table
from vla_simd_ros.benchmarks.work import Work


@pytest.mark.parametrize(
    ("nbytes", "gb_per_s"),
    [(0, 400.0), (1 << 14, 400.0), (1 << 16, 300.0), (1 << 20, 150.0), (1 << 28, 10.0), (1 << 40, 10.0)],
)
def test_bandwidth_lies_between_the_measured_sizes(nbytes: int, gb_per_s: float) -> None:
    assert ROUND.gb_per_s(nbytes) == pytest.approx(gb_per_s)


def test_the_slower_of_computing_and_moving_bounds() -> None:
    computing = Work(flops=9_000_000, executed=1_000_000, weight_bytes=0, nbytes=1 << 14)
    assert ROUND.alone_ms(computing) == pytest.approx(0.01)  # of what is executed
    moving = Work(flops=0, executed=0, weight_bytes=0, nbytes=1 << 18)
    assert ROUND.alone_ms(moving) == pytest.approx((1 << 18) / 200e6)


def test_exponentials_take_the_places_of_five_multiply_adds_each_or_four_beside_a_table() -> None:
    work = Work(flops=1_000_000, executed=1_000_000, weight_bytes=0, nbytes=1 << 10, exponentials=10_000)
    assert ROUND.alone_ms(work) == pytest.approx(0.01)
    assert ROUND.with_exponentials_ms(work) == pytest.approx(0.011)
    with_table = replace(ROUND, isa="avx512").at_peak(100.0)
    assert with_table.with_exponentials_ms(work) == pytest.approx(0.0108)
    moving = Work(flops=1, executed=1, weight_bytes=0, nbytes=1 << 18, exponentials=10)
    assert ROUND.with_exponentials_ms(moving) == ROUND.alone_ms(moving)


def test_weights_come_from_memory_in_a_query() -> None:
    work = Work(flops=1, executed=1, weight_bytes=1 << 18, nbytes=(1 << 18) + (1 << 14))
    assert ROUND.in_query_ms(work) == pytest.approx((1 << 18) / 10e6 + (1 << 14) / 400e6)
    assert ROUND.alone_ms(work) < ROUND.in_query_ms(work) / 10


def test_the_table_shows_every_ceiling() -> None:
    cells = [row.split("|")[1:3] for row in roofline_table(ROUND)]
    assert [[cell.strip() for cell in row] for row in cells[2:]] == [
        ["FMA peak, avx2", "100.0 GFLOP/s"],
        ["FMA peak, avx512", "199.0 GFLOP/s"],
        ["read bandwidth from 16 KiB", "400.0 GB/s"],
        ["read bandwidth from 256 KiB", "200.0 GB/s"],
        ["read bandwidth from 4 MiB", "100.0 GB/s"],
        ["read bandwidth from 256 MiB", "10.0 GB/s"],
    ]


def test_this_machine_has_ceilings() -> None:
    roofline = measure_roofline("portable", 1)
    assert roofline.peak_gflops == roofline.peaks["portable"] > 0.01
    assert min(roofline.bandwidth) == 1 << 14 and max(roofline.bandwidth) == 1 << 28
    assert all(rate > 0.01 for rate in roofline.bandwidth.values())
    assert peak_now("portable", 2) > 0.02


def test_another_peak_is_that_of_the_instruction_set_in_use() -> None:
    other = ROUND.at_peak(50.0)
    assert (other.peak_gflops, other.peaks["avx512"]) == (50.0, 199.0)
    assert other.bandwidth == ROUND.bandwidth
