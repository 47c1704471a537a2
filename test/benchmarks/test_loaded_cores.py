from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vla_simd_ros.benchmarks import loaded_cores
from vla_simd_ros.benchmarks.loaded_cores import LoadedCores

CPU = max(os.sched_getaffinity(0))
PATIENCE_S = 30.0


def ticks(pid: int) -> int:
    """Clock ticks that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_core_is_taken_while_a_share_is_asked_for() -> None:
    with LoadedCores([CPU]) as taker:
        (process,) = taker._processes
        assert process.pid is not None
        assert os.sched_getaffinity(process.pid) == {CPU}
        start, deadline = ticks(process.pid), time.monotonic() + PATIENCE_S
        taker.take(0.9)
        while ticks(process.pid) < start + 3:
            assert time.monotonic() < deadline, "the core is not taken"
            time.sleep(0.01)
        taker.take(0.0)
    assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_leaves_something(share: float) -> None:
    with LoadedCores([]) as taker, pytest.raises(ValueError, match="expected 0 or more and less than 1"):
        taker.take(share)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (os.SCHED_OTHER, None),
        (os.SCHED_RR | os.SCHED_RESET_ON_FORK, (os.SCHED_RR, 3)),
        (os.SCHED_FIFO, (os.SCHED_FIFO, 3)),
    ],
)
def test_it_precedes_real_time_work(
    monkeypatch: pytest.MonkeyPatch, policy: int, expected: tuple[int, int] | None
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: policy)
    monkeypatch.setattr(os, "sched_getparam", lambda pid: os.sched_param(2))
    monkeypatch.setattr(os, "sched_setscheduler", lambda pid, kind, p: asked.append((kind, p.sched_priority)))
    loaded_cores._precede_parent()
    assert asked == ([] if expected is None else [expected])
