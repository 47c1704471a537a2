"""Scheduling of threads as the system sees it, in a process of its own that may be stuck with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from vla_simd_ros import thread_scheduling

RAISE = """
import os, threading
from vla_simd_ros import thread_scheduling
ended = threading.Event()
thread = threading.Thread(target=ended.wait)
thread.start()
for priority in (7, 0):
    try:
        thread_scheduling.schedule(priority)
    except OSError as error:
        print(error)
    else:
        for tid in (threading.get_native_id(), thread.native_id):
            print(os.sched_getscheduler(tid), os.sched_getparam(tid).sched_priority)
ended.set()
"""


def test_all_threads_are_raised_and_lowered_or_the_user_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RAISE], capture_output=True, text=True, timeout=120, check=True
    )
    raised = [f"{os.SCHED_FIFO} 7"] * 2
    lowered = [f"{os.SCHED_OTHER} 0"] * 2
    refused = (
        "priority 7 is not permitted to this user: a line '<user> - rtprio 7' in /etc/security/limits.conf "
        "permits it"
    )
    assert done.stdout.splitlines() in (raised + lowered, [refused, *lowered])


def test_a_refusal_says_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with pytest.raises(OSError, match=r"'<user> - rtprio 50' in /etc/security/limits\.conf"):
        thread_scheduling.schedule(50)


def test_a_thread_that_has_just_ended_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "sched_setscheduler", gone)
    thread_scheduling.schedule(50)


def test_a_system_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setscheduler")
    with pytest.raises(OSError, match="no real-time scheduling"):
        thread_scheduling.schedule(50)
