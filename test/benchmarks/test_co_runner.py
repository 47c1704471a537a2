from __future__ import annotations

import os
import time
from pathlib import Path

from vla_simd_ros.benchmarks.co_runner import BusyProcess, measure_co_run
from vla_simd_ros.benchmarks.interleave import Plan

CPU = max(os.sched_getaffinity(0))


def cpu_ticks(pid: int) -> int:
    """Clock ticks that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_for_ticks(pid: int, ticks: int) -> bool:
    deadline = time.monotonic() + 20
    while cpu_ticks(pid) < ticks and time.monotonic() < deadline:
        time.sleep(0.01)
    return cpu_ticks(pid) >= ticks


def test_it_computes_on_its_cpu_only_while_it_is_let() -> None:
    with BusyProcess(CPU) as other:
        pid = other.pid
        assert os.sched_getaffinity(pid) == {CPU}
        with other.busy():
            assert wait_for_ticks(pid, cpu_ticks(pid) + 2)
        time.sleep(0.02)  # for the signal to be delivered
        stopped = cpu_ticks(pid)
        time.sleep(0.05)
        assert cpu_ticks(pid) == stopped
    assert not Path(f"/proc/{pid}").exists()


class Clockwork:
    """Queries of one, two, three ... milliseconds."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def time_queries(self, first: int, count: int) -> list[float]:
        self.asked.append((first, count))
        return [float(len(self.asked))] * count


def test_turns_alone_and_beside_alternate() -> None:
    runner = Clockwork()
    run = measure_co_run(runner, Plan(blocks=1, per_visit=2), lambda _: None)
    assert runner.asked == [(0, 2), (0, 2), (2, 2), (2, 2)]
    assert (run.cpu, run.alone.n, run.beside.n) == (CPU, 4, 4)
    assert (run.alone.median_ms, run.beside.median_ms) == (2.5, 2.5)  # turns 1 and 4 against 2 and 3
    assert run.comparison.ratio == 1.0
