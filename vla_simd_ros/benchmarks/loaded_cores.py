"""Processes that take a share of some cores' time, as other modules on a vehicle's computer do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Collection
from typing import Any

from vla_simd_ros.benchmarks.child import end_with_parent

PERIOD_S = 0.005
"""In every such period a core is taken for the share of it that is asked for, at its beginning."""


class LoadedCores:
    """One process on each of ``cpus``. A context manager; nothing is taken at first.

    Where this process runs with real-time priority, those run above it: they get their share at once.
    Elsewhere the kernel lets them have it before others as long as it is not the greater part.
    """

    def __init__(self, cpus: Collection[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._share = context.Value("d", 0.0)
        ready = context.Semaphore(0)
        self._processes = [
            context.Process(target=_load, args=(cpu, self._share, ready), name=f"load of CPU {cpu}")
            for cpu in cpus
        ]
        for process in self._processes:
            process.start()
        for _ in self._processes:
            ready.acquire()

    def take(self, share: float) -> None:
        """Take ``share``, 0 to less than 1, of every core from now on."""
        if not 0.0 <= share < 1.0:
            raise ValueError(f"the share is {share}, expected 0 or more and less than 1")
        self._share.value = share

    def __enter__(self) -> LoadedCores:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _load(cpu: int, share: Any, ready: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    end_with_parent()
    os.sched_setaffinity(0, {cpu})
    _precede_parent()
    ready.release()
    begin = time.perf_counter()
    while True:
        busy_until = begin + share.value * PERIOD_S
        while time.perf_counter() < busy_until:
            pass
        begin += PERIOD_S
        rest_s = begin - time.perf_counter()
        if rest_s > 0.0:
            time.sleep(rest_s)
        else:  # held up: what was missed is not made up for
            begin = time.perf_counter()


def _precede_parent() -> None:
    """One more real-time priority than what was inherited, if any."""
    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    if policy not in (os.SCHED_RR, os.SCHED_FIFO):
        return
    priority = os.sched_getparam(0).sched_priority
    most = os.sched_get_priority_max(policy)
    os.sched_setscheduler(0, policy, os.sched_param(min(priority + 1, most)))
