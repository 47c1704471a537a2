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
        (Side((1, 2)), Side((2, 3)), (), r"prefix_cpus and suffix_cpus both have \[2\]"),
        (Side((9,)), Side(), (), r"prefix_cpus has \[9\], expected some of \[0"),
        (Side(), Side((1,)), (1,), r"suffix_cpus has \[1\], which reserved_cpus has too"),
        (Side((1,), 2), Side(), (), r"prefix_threads is 2, but the CPUs left for it are \[1\]"),
        (Side(threads=4), Side(threads=5), (), r"suffix_threads is 5, but the CPUs left .* \[4, 5, 6, 7\]"),
        (Side(), Side(threads=8), (), r"the prefix needs a CPU, but the CPUs left for it are \[\]"),
        (Side(), Side(), EIGHT, r"reserved_cpus has \[0, .*, all of \[0"),
        (Side(), Side(), (99999,), r"reserved_cpus has \[99999\], expected CPUs that this machine has"),
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


def test_a_process_that_stands_back_farther_is_not_brought_forward() -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)

    def nested() -> int:
        Placement(tuple(os.sched_getaffinity(0)), min(19, nice + 1)).take()
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    farther = Placement(tuple(os.sched_getaffinity(0)), min(19, nice + 3))
    assert farther.run(nested) == farther.nice


def test_what_this_process_may_not_use_can_be_reserved() -> None:
    """As in a cpuset: the machine has the CPU 0, which is not available here."""
    assert assign_cores((900, 901), (0,), Side(), Side()) == ((900,), (901,))


def test_what_is_raised_there_is_raised_here() -> None:
    def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        Placement(tuple(os.sched_getaffinity(0))).run(fail)
