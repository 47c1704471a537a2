"""Cores for both sides, and threads that stay where they were put."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.hybrid.placement import Placement, PlacementError, Side, assign_cores, by_core

EIGHT = range(8)


@pytest.mark.parametrize(
    ("prefix", "suffix", "reserved", "expected"),
    [
        (Side(), Side(), (), ((0, 1, 2, 3), (4, 5, 6, 7))),
        (Side(threads=1), Side(), (), ((0,), (1, 2, 3, 4, 5, 6, 7))),
        (Side(), Side(threads=6), (), ((0, 1), (2, 3, 4, 5, 6, 7))),
        (Side(threads=1), Side(threads=2), (6, 7), ((0,), (4, 5))),
        (Side((5,)), Side(threads=1), (), ((5,), (7,))),
        (Side(), Side((0, 1)), (7,), ((2, 3, 4, 5, 6), (0, 1))),
        (Side((3, 1)), Side((2,)), (), ((3, 1), (2,))),
    ],
)
def test_both_sides_get_cores_of_their_own(prefix: Side, suffix: Side, reserved: Any, expected: Any) -> None:
    assert assign_cores(EIGHT, reserved, prefix, suffix) == expected


def test_a_single_core_is_shared() -> None:
    assert assign_cores([3], (), Side(threads=1), Side(threads=1)) == ((3,), (3,))


@pytest.mark.parametrize(
    ("prefix", "suffix", "reserved", "words"),
    [
        (Side((1, 2)), Side((2, 3)), (), r"both have the CPUs \[2\]"),
        (Side((9,)), Side(), (), r"the prefix's CPUs \[9\] are not there, expected some of \[0"),
        (Side(), Side((1,)), (1,), r"the suffix's CPUs \[1\] are reserved"),
        (Side((1,), 2), Side(), (), r"the prefix has 1 CPUs \[1\] for 2 threads"),
        (Side(threads=4), Side(threads=5), (), r"the suffix has 4 CPUs \[4, 5, 6, 7\] for 5 threads"),
        (Side(), Side(threads=8), (), r"the prefix has 0 CPUs \[\] for its threads"),
        (Side(), Side(), EIGHT, "are all of"),
    ],
)
def test_what_cannot_be_is_said(prefix: Side, suffix: Side, reserved: Any, words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        assign_cores(EIGHT, reserved, prefix, suffix)


def test_siblings_of_one_core_stay_together(tmp_path: Path) -> None:
    """Four cores of two threads in two packages, numbered as Linux does it."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{cpu % 4 // 2}\n")
        (folder / "core_id").write_text(f"{cpu % 2}\n")
    assert by_core(range(8), tmp_path) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert by_core([3, 1, 2], tmp_path / "nowhere") == [1, 2, 3]


def test_a_thread_and_those_it_starts_run_where_they_were_put() -> None:
    here = sorted(os.sched_getaffinity(0))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    place = Placement((here[-1],), nice=min(19, nice + 3))

    def look() -> tuple[set[int], int]:
        return set(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    seen: list[Any] = []

    def child() -> None:
        seen.append(look())

    def work() -> str:
        place.take()
        seen.append(look())
        thread = threading.Thread(target=child)
        thread.start()
        thread.join()
        return "done"

    assert place.run(work) == "done"
    assert seen == [({here[-1]}, place.nice)] * 2
    assert sorted(os.sched_getaffinity(0)) == here, "this thread stays where it is"


def test_what_is_raised_there_is_raised_here() -> None:
    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        Placement(tuple(os.sched_getaffinity(0))).run(fail)
