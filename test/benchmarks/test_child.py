from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from vla_simd_ros.benchmarks.backend import BenchmarkError, Setup
from vla_simd_ros.benchmarks.child import ChildRunner, Turns
from vla_simd_ros.benchmarks.disturbances import Disturbance
from vla_simd_ros.executors.settings import EngineSettings

SETUP = Setup(checkpoint="", instruction="", settings=EngineSettings(threads=2))


def start(backend: str, **kwargs: object) -> ChildRunner:
    return ChildRunner("runner", f"fake_backends:{backend}", SETUP, [1.0, 3.0], **kwargs)  # type: ignore[arg-type]


class Recorder:
    """A backend that notes what it was asked and advances the clock by 5 ms a query."""

    details: dict[str, str] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.now_ns = 0

    def query(self, observation: float) -> np.ndarray:
        self.asked.append(observation)
        self.now_ns += 5_000_000
        return np.array([[observation]], dtype=np.float32)


@pytest.fixture
def turns() -> Iterator[tuple[Turns, Recorder]]:
    backend = Recorder()
    yield Turns(backend, [1.0, 2.0, 3.0], lambda: backend.now_ns), backend  # type: ignore[arg-type, list-item]


def test_the_clock_surrounds_the_query_alone(turns: tuple[Turns, Recorder]) -> None:
    assert turns[0].time_queries(0, 3) == [5.0, 5.0, 5.0]


def test_observations_are_asked_in_a_ring(turns: tuple[Turns, Recorder]) -> None:
    turns[0].time_queries(2, 4)
    assert turns[1].asked == [3.0, 1.0, 2.0, 3.0]


def test_programs_are_told_as_medians_of_the_last_queries() -> None:
    class Stepping(Recorder):
        spent_ms: dict[str, float] = {}  # noqa: RUF012

        def query(self, observation: float) -> np.ndarray:
            self.spent_ms = {"query": observation, "step": 10 * observation}
            return super().query(observation)

    backend = Stepping()
    turns = Turns(backend, [1.0, 2.0, 6.0], lambda: backend.now_ns)  # type: ignore[arg-type, list-item]
    turns.time_queries(0, 4)
    assert turns.programs(3) == {"query": 2.0, "step": 20.0}


def test_a_backend_that_cannot_tell_its_programs_has_none(turns: tuple[Turns, Recorder]) -> None:
    turns[0].time_queries(0, 2)
    assert turns[0].programs(2) == {}


def test_what_happened_around_the_last_queries_is_told() -> None:
    backend = Recorder()
    faults = iter((3, 4, 10, 12, 20, 29))
    turns = Turns(
        backend,
        [1.0],  # type: ignore[list-item]
        lambda: backend.now_ns,
        lambda: Disturbance(faults=next(faults)),
    )
    turns.time_queries(0, 3)
    assert [around.faults for around in turns.disturbances(2)] == [2, 9]


def test_soak_lasts_until_its_time_is_over(turns: tuple[Turns, Recorder]) -> None:
    samples = turns[0].soak(0.02)
    assert samples == [(0.005, 5.0), (0.01, 5.0), (0.015, 5.0), (0.02, 5.0)]


def test_a_process_answers_and_times_and_profiles() -> None:
    with start("Faithful") as runner:
        assert runner.details == {"threads": "2", "isa": "fake", "int8": "", "omp": "2"}
        first, second = runner.answers(2)
        assert first[0, 0] == 1.0 and second[0, 0] == 3.0
        assert len(runner.time_queries(0, 3)) == 3
        assert [op.ms for op in runner.profile(4)] == [4.0]


def test_nothing_of_a_runner_runs_outside_its_turn() -> None:
    with start("Spinning") as runner:
        runner.answers(2)
        pid = int(runner.details["pid"])
        end = time.monotonic() + 20.0
        while _state(pid) != "T":  # it is told to stop, and does when its threads next run
            assert time.monotonic() < end
            time.sleep(0.01)
        before = _cpu_ticks(pid)
        time.sleep(0.3)
        assert _cpu_ticks(pid) == before
        runner.answers(2)  # and it runs again when asked


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _cpu_ticks(pid: int) -> int:
    return int(_stat(pid)[11]) + int(_stat(pid)[12])


def test_closing_ends_a_stopped_process() -> None:
    runner = start("Spinning")
    pid = int(runner.details["pid"])
    runner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("Impossible", "runner 'runner': needs a package that is not there"),
        ("Absent", "runner 'runner': AttributeError"),
    ],
)
def test_a_backend_that_cannot_be_made(backend: str, message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        start(backend)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("Broken", "runner 'runner': ValueError: cannot answer 1.0"),
        ("Dying", "runner 'runner': its process ended with code 7"),
    ],
)
def test_a_query_that_fails(backend: str, message: str) -> None:
    with start(backend) as runner, pytest.raises(BenchmarkError, match=message):
        runner.answers(2)


def test_a_process_killed_between_turns() -> None:
    with start("Spinning") as runner:
        os.kill(int(runner.details["pid"]), signal.SIGKILL)
        with pytest.raises(BenchmarkError, match="ended with code -9"):
            runner.answers(2)


def test_a_backend_without_a_profile_says_so() -> None:
    with start("Opaque") as runner, pytest.raises(BenchmarkError, match="cannot tell the time"):
        runner.profile(1)


def test_waiting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vla_simd_ros.benchmarks.child._HEARTBEAT_S", 0.0)
    waited: list[float] = []
    with start("Faithful", waiting=waited.append):
        assert waited
