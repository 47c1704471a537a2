from __future__ import annotations

import json

import pytest

from vla_simd_ros.benchmarks.disturbances import Disturbance
from vla_simd_ros.benchmarks.tail import find_tail, tail_tables

QUIET = Disturbance(1, 2, 0, 0, 0)
TIMES = [90.0, 100.0, 100.0, 104.0, 116.0, 200.0]
AROUND = [QUIET, QUIET, QUIET, QUIET, Disturbance(11, 2, 0, 10, 0), Disturbance(21, 4, 8, 30, 50)]


def test_the_histogram_counts_every_query_once() -> None:
    tail = find_tail(TIMES, AROUND)  # the median is 102
    assert tail.counts == (1, 2, 1, 0, 1, 0, 0, 1)
    assert sum(tail.counts) == len(TIMES)


def test_slow_queries_are_set_beside_the_others() -> None:
    tail = find_tail([*TIMES, 100.0], [*AROUND, QUIET])  # the median is 100
    assert (tail.usual.queries, tail.usual.disturbance) == (5, QUIET)
    assert tail.slow is not None
    assert (tail.slow.queries, tail.slow.mean_ms) == (2, 158.0)
    assert tail.slow.disturbance == Disturbance(16, 3, 4, 20, 25)


def test_a_run_without_slow_queries() -> None:
    tail = find_tail([1.0, 1.0], [QUIET, QUIET])
    assert tail.slow is None
    assert not any("slower" in line for line in tail_tables(tail))


def test_the_tables_and_json_tell_the_same() -> None:
    tail = find_tail(TIMES, AROUND)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tail_tables(tail)]
    assert ["to 0.95", "1"] in cells and ["above 1.5", "1"] in cells
    assert ["slower", "1", "200.0", "21.0", "4.0", "8.0", "30.0", "50.0"] in cells
    report = json.loads(json.dumps(tail.to_json()))
    assert report["slow"]["disturbance"]["stolen_ms"] == 30
    assert len(report["edges_in_medians"]) + 1 == len(report["counts"])


@pytest.mark.parametrize(("times", "around"), [([], []), ([1.0], []), ([1.0], [QUIET, QUIET])])
def test_every_query_needs_its_disturbance(times: list[float], around: list[Disturbance]) -> None:
    with pytest.raises(ValueError, match=f"got {len(times)} times and {len(around)} disturbances"):
        find_tail(times, around)
