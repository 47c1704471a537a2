from __future__ import annotations

import mmap
import os
import time

import pytest

from vla_simd_ros.benchmarks import disturbances
from vla_simd_ros.benchmarks.disturbances import Disturbance, count_disturbances

STAT = "cpu  100 20 30 4000 5 6 7 8 900 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"


def test_the_line_of_all_cores_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tick_ms = 1e3 / os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(disturbances, "read_text", lambda path: {"/proc/stat": STAT}[path])
    counted = count_disturbances()
    assert counted.stolen_ms == 8 * tick_ms
    own_ms = time.process_time() * 1e3
    assert counted.others_ms == pytest.approx((100 + 20 + 30 + 6 + 7) * tick_ms - own_ms, abs=50)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "\n"])
def test_a_kernel_that_tells_nothing_is_no_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(disturbances, "read_text", lambda path: text)
    assert count_disturbances().stolen_ms == 0


def test_counts_grow_with_what_happens() -> None:
    pages = mmap.mmap(-1, 64 * mmap.PAGESIZE)  # an allocator could hand out pages that were there before
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    before = count_disturbances()
    for page in range(64):
        pages[page * mmap.PAGESIZE] = 1
    time.sleep(0.001)
    after = count_disturbances() - before
    assert after.faults >= 64 and after.slept >= 1 and after.preempted >= 0


def test_differences_are_taken_count_by_count() -> None:
    assert Disturbance(5, 4, 3, 2, 1) - Disturbance(1, 1, 1, 1, 1) == Disturbance(4, 3, 2, 1, 0)
