"""The query thread: newest observation, episodes, and results that come too late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from vla_simd_ros.inference import Cancelled
from vla_simd_ros.nodes.episodes import Episode, EpochCounter
from vla_simd_ros.nodes.query_worker import FrameSet, QueryWorker

PATIENCE_S = 10.0


class FakeRunner:
    """Queries that last until the test lets them go on."""

    def __init__(self) -> None:
        self.begun: list[Episode] = []
        self.asked: list[int] = []
        self.not_due: set[int] = set()
        self.started: list[int] = []
        self.delivered: list[tuple[int, int, float]] = []
        self.errors: list[str] = []
        self.closed = threading.Event()
        self.gate = threading.Semaphore(0)
        self.changed = threading.Condition()
        self.fail_begin = False
        self.fail_query = False
        self.fail_deliver = False

    def begin(self, episode: Episode) -> float:
        self._note(self.begun, episode)
        if self.fail_begin:
            raise ValueError("instruction refused")
        return 5.0

    def due(self, frames: FrameSet) -> bool:
        self._note(self.asked, frames.stamp_ns)
        return frames.stamp_ns not in self.not_due

    def query(self, frames: FrameSet) -> int:
        self._note(self.started, frames.stamp_ns)
        assert self.gate.acquire(timeout=PATIENCE_S)
        if self.fail_query:
            raise ValueError("query failed")
        return frames.stamp_ns

    def deliver(self, result: int, episode: Episode, episode_ms: float) -> None:
        if self.fail_deliver:
            raise ValueError("nobody there")
        self._note(self.delivered, (result, episode.epoch, episode_ms))

    def failed(self, error: Exception) -> None:
        self._note(self.errors, str(error))

    def cancel(self) -> None:
        """A call into native code that cannot be interrupted."""

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()

    def wait(self, condition: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S)

    def _note(self, log: list[Any], entry: Any) -> None:
        with self.changed:
            log.append(entry)
            self.changed.notify_all()


class EndlessRunner(FakeRunner):
    """Queries that last until they are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = threading.Event()

    def query(self, frames: FrameSet) -> int:
        self._note(self.started, frames.stamp_ns)
        assert self.cancelled.wait(PATIENCE_S)
        raise Cancelled("the run was cancelled")

    def cancel(self) -> None:
        self.cancelled.set()

    def resume(self) -> None:
        self.cancelled.clear()


def frames(time: int) -> FrameSet:
    return FrameSet(time, time, time, {})


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


@pytest.fixture
def worker(runner: FakeRunner) -> Iterator[QueryWorker]:
    made = QueryWorker(runner)
    yield made
    runner.gate.release(100)
    assert made.stop(PATIENCE_S)


def test_the_newest_observation_is_queried_and_older_ones_are_skipped(
    runner: FakeRunner, worker: QueryWorker
) -> None:
    worker.begin(Episode(1, "go"))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    for time in (20, 30, 40):
        worker.offer(frames(time))
    runner.gate.release(2)
    runner.wait(lambda: len(runner.delivered) == 2)
    assert runner.delivered == [(10, 1, 5.0), (40, 1, 0.0)]


def test_observations_that_are_not_due_are_passed_over(runner: FakeRunner, worker: QueryWorker) -> None:
    runner.not_due = {10, 20}
    runner.gate.release(9)
    worker.begin(Episode(1, "go"))
    for time in (10, 20, 30):
        worker.offer(frames(time))
        runner.wait(lambda t=time: runner.asked[-1:] == [t])
    runner.wait(lambda: runner.delivered)
    assert runner.delivered == [(30, 1, 5.0)]
    assert runner.started == [30]


def test_an_episode_begins_before_any_observation(runner: FakeRunner, worker: QueryWorker) -> None:
    worker.begin(Episode(1, "go"))
    runner.wait(lambda: runner.begun == [Episode(1, "go")])


def test_a_result_of_an_older_episode_is_dropped(runner: FakeRunner, worker: QueryWorker) -> None:
    worker.begin(Episode(1, "go"))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    worker.begin(Episode(2, "stop"))
    worker.offer(frames(20))
    runner.gate.release(2)
    runner.wait(lambda: len(runner.delivered) == 1)
    assert runner.delivered == [(20, 2, 5.0)]
    assert [episode.epoch for episode in runner.begun] == [1, 2]


def test_frames_from_before_an_episode_are_not_used(runner: FakeRunner, worker: QueryWorker) -> None:
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    worker.offer(frames(20))
    worker.begin(Episode(2, None))
    runner.gate.release()
    runner.wait(lambda: len(runner.begun) == 2)
    worker.offer(frames(30))
    runner.wait(lambda: len(runner.started) == 2)
    assert runner.started == [10, 30]


def test_a_pause_drops_the_result_in_flight(runner: FakeRunner, worker: QueryWorker) -> None:
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    worker.pause()
    worker.offer(frames(20))
    runner.gate.release()
    worker.begin(Episode(2, None))
    worker.offer(frames(30))
    runner.gate.release()
    runner.wait(lambda: len(runner.delivered) == 1)
    assert runner.delivered == [(30, 2, 5.0)]


def test_a_failed_query_is_reported_and_the_next_one_runs(runner: FakeRunner, worker: QueryWorker) -> None:
    runner.fail_query = True
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.gate.release()
    runner.wait(lambda: runner.errors == ["query failed"])
    runner.fail_query = False
    worker.offer(frames(20))
    runner.gate.release()
    runner.wait(lambda: len(runner.delivered) == 1)


def test_a_failed_delivery_is_reported_and_the_next_query_runs(
    runner: FakeRunner, worker: QueryWorker
) -> None:
    runner.fail_deliver = True
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.gate.release()
    runner.wait(lambda: runner.errors == ["nobody there"])
    runner.fail_deliver = False
    worker.offer(frames(20))
    runner.gate.release()
    runner.wait(lambda: [delivered[0] for delivered in runner.delivered] == [20])


def test_after_a_failed_episode_nothing_is_queried_until_the_next_one(
    runner: FakeRunner, worker: QueryWorker
) -> None:
    runner.fail_begin = True
    worker.begin(Episode(1, "?"))
    runner.wait(lambda: runner.errors == ["instruction refused"])
    runner.fail_begin = False
    worker.offer(frames(10))
    worker.begin(Episode(2, "go"))
    worker.offer(frames(20))
    runner.gate.release()
    runner.wait(lambda: len(runner.delivered) == 1)
    assert runner.started == [20]


def test_stopping_during_a_query_does_not_wait_and_the_runner_is_closed_after_it(runner: FakeRunner) -> None:
    worker = QueryWorker(runner)
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    assert not worker.stop(0.01)
    assert not runner.closed.is_set()
    runner.gate.release()
    assert runner.closed.wait(PATIENCE_S)
    assert runner.delivered == []


def test_a_new_episode_and_a_stop_end_the_query_that_runs() -> None:
    runner = EndlessRunner()
    worker = QueryWorker(runner)
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    worker.begin(Episode(2, None))
    worker.offer(frames(20))
    runner.wait(lambda: runner.started == [10, 20])
    assert worker.stop(PATIENCE_S)
    assert runner.closed.is_set()
    assert runner.errors == [] and runner.delivered == []


def test_a_pause_ends_the_query_that_runs_and_the_next_episode_queries_again() -> None:
    runner = EndlessRunner()
    worker = QueryWorker(runner)
    worker.begin(Episode(1, None))
    worker.offer(frames(10))
    runner.wait(lambda: runner.started == [10])
    worker.pause()
    worker.begin(Episode(2, None))
    worker.offer(frames(20))
    runner.wait(lambda: runner.started == [10, 20])
    assert worker.stop(PATIENCE_S)


def test_stopping_while_idle_closes_the_runner(runner: FakeRunner) -> None:
    assert QueryWorker(runner).stop(PATIENCE_S)
    assert runner.closed.is_set()


def test_epochs_grow_even_when_the_clock_goes_backwards() -> None:
    epochs = EpochCounter()
    assert [epochs.next(now) for now in (100, 200, 50, 50, 300)] == [100, 200, 201, 202, 300]
