"""How the system schedules the threads of this process: in real time, or as they were before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_PRIORITY = 99
_THREADS = Path("/proc/self/task")


def schedule(priority: int) -> None:
    """Put every thread of this process under SCHED_FIFO at a priority of 1 to 99, or, at 0, back under
    ordinary scheduling. Threads started later take after the one that starts them.

    Raises:
        OSError: the system does not permit it, or has no such scheduling; says what would help.
    """
    if not hasattr(os, "sched_setscheduler"):
        raise OSError("this system has no real-time scheduling")
    policy = os.SCHED_FIFO if priority else os.SCHED_OTHER
    try:
        _put(_threads(), policy, os.sched_param(priority))
    except PermissionError as error:
        raise OSError(
            f"priority {priority} is not permitted to this user: a line '<user> - rtprio {priority}' in "
            "/etc/security/limits.conf permits it"
        ) from error


@contextmanager
def kept_scheduling() -> Iterator[None]:
    """For a library that raises itself: after the block this thread is scheduled as before it, and so are the
    threads that were started in it."""
    before = _threads()
    if not before:
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
        _put(_threads() - before, policy, parameters)


def _threads() -> set[int]:
    """Their numbers; none where the system does not show them."""
    return {int(thread.name) for thread in _THREADS.iterdir()} if _THREADS.is_dir() else set()


def _put(threads: set[int], policy: int, parameters: os.sched_param) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):  # it has just ended
            os.sched_setscheduler(thread, policy, parameters)
