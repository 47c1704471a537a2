"""Latency beside another process that keeps one core busy, as on a robot's computer it may."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from vla_simd_ros.benchmarks.child import end_with_parent
from vla_simd_ros.benchmarks.interleave import Plan, Progress, Timed, measure
from vla_simd_ros.benchmarks.statistics import Comparison, Summary, compare, summarize

_ALONE, _BESIDE = "alone", "beside a busy process"


@dataclass(frozen=True)
class CoRun:
    """Query times alone and with ``cpu`` kept busy, in turns, and how many times longer the latter take."""

    cpu: int
    alone: Summary
    beside: Summary
    comparison: Comparison


class BusyProcess:
    """A process that computes without end on one CPU while it is let. A context manager."""

    def __init__(self, cpu: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_keep_busy, args=(cpu, theirs), name="bench co-runner")
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        ours.recv()  # it is about to begin
        os.kill(self.pid, signal.SIGSTOP)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Let it compute for as long as this lasts."""
        os.kill(self.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGSTOP)

    def __enter__(self) -> BusyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


class _Beside:
    """A runner's turns while the other process computes."""

    def __init__(self, runner: Timed, other: BusyProcess) -> None:
        self._runner = runner
        self._other = other

    def time_queries(self, first: int, count: int) -> list[float]:
        with self._other.busy():
            return self._runner.time_queries(first, count)


def measure_co_run(runner: Timed, plan: Plan, progress: Progress) -> CoRun:
    """Times of ``runner`` alone and beside a busy process on the last CPU that this process may use."""
    cpu = max(os.sched_getaffinity(0))
    with BusyProcess(cpu) as other:
        times = measure({_ALONE: runner, _BESIDE: _Beside(runner, other)}, plan, progress)
    alone, beside = (summarize([ms for block in times[name] for ms in block]) for name in (_ALONE, _BESIDE))
    return CoRun(cpu, alone, beside, compare(times[_BESIDE], times[_ALONE]))


def _keep_busy(cpu: int, ready: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    end_with_parent()
    os.sched_setaffinity(0, {cpu})
    ready.send(None)
    while True:
        pass
