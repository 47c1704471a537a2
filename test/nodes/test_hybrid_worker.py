"""Frames between the node's thread and the stages: which one is computed first, and in which order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from vla_simd_ros.hybrid.frame_pipeline import Drop
from vla_simd_ros.hybrid.pipeline_supervisor import RestartSettings
from vla_simd_ros.inference import InputError
from vla_simd_ros.nodes.episodes import Episode
from vla_simd_ros.nodes.frame_stages import Predicted, Submitted
from vla_simd_ros.nodes.hybrid_worker import HybridWorker
from vla_simd_ros.nodes.query_worker import FrameSet

PATIENCE_S = 30.0


def frames(number: int) -> FrameSet:
    return FrameSet(number, number, number, {})


@dataclass
class World:
    """Runner, stages and mover in one, that note what they are asked."""

    delivered: list[tuple[int, int, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)
    is_due: bool = True

    # The runner.
    def due(self, frame_set: FrameSet) -> bool:
        return self.is_due

    def deliver(self, prediction: int, episode: Episode, spent: float) -> None:
        self.delivered.append((episode.epoch, prediction, spent))

    def failed(self, error: Exception) -> None:
        self.problems.append(str(error))

    # The stages.
    def instruct(self, episode: Episode) -> float:
        if episode.instruction == "?":
            raise InputError("no words")
        assert self.ready.wait(PATIENCE_S)
        return 7.0

    def prefix(self, submitted: Submitted) -> Submitted:
        return submitted

    def suffix(self, submitted: Submitted) -> Predicted:
        return Predicted(submitted.episode, submitted.frames.stamp_ns, SimpleNamespace(blocks=0))  # type: ignore[arg-type]

    def cancel(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self.ready.set()

    # The mover.
    def frame(self, *_: Any) -> None:
        pass

    def sample(self) -> None:
        pass

    def interrupted(self) -> None:
        pass


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def worker(world: World) -> Iterator[HybridWorker]:
    def never() -> Any:
        raise AssertionError("nothing fails here")

    made: Any = HybridWorker(
        world,  # type: ignore[arg-type]
        world,  # type: ignore[arg-type]
        never,
        never,
        RestartSettings(),
        world,  # type: ignore[arg-type]
        lambda: None,
    )
    yield made
    world.ready.set()
    assert made.stop(PATIENCE_S)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def test_the_newest_frame_waits_for_the_instruction_and_comes_first(
    world: World, worker: HybridWorker
) -> None:
    worker.offer(frames(1))
    worker.begin(Episode(5, "go"))
    for number in (2, 3, 4):
        worker.offer(frames(number))
    assert worker.supervisor.counts.dropped[Drop.NO_PIPELINE] == 2, "one before the episode counts nowhere"
    world.ready.set()
    wait(lambda: len(world.delivered) == 1)
    assert world.delivered == [(5, 4, 7.0)]
    worker.offer(frames(6))
    wait(lambda: len(world.delivered) == 2)
    assert world.delivered[1] == (5, 6, 0.0), "the instruction's time is told once"


def test_frames_are_never_overtaken(world: World, worker: HybridWorker) -> None:
    """Offered while the stages become ready, again and again."""
    for epoch in range(1, 30):
        world.ready.clear()
        worker.begin(Episode(epoch, "go"))
        threading.Timer(0.002, world.ready.set).start()
        for number in range(20):
            worker.offer(frames(100 * epoch + number))
            time.sleep(0.0005)
        wait(lambda last=100 * epoch + 19: bool(world.delivered) and world.delivered[-1][1] == last)  # type: ignore[misc]
    stamps = [stamp for _, stamp, _ in world.delivered]
    assert stamps == sorted(set(stamps))
    assert all(stamp // 100 == epoch for epoch, stamp, _ in world.delivered)


def test_a_pause_delivers_nothing_until_the_next_episode(world: World, worker: HybridWorker) -> None:
    world.ready.set()
    worker.begin(Episode(1, "go"))
    worker.pause()
    worker.offer(frames(1))
    worker.begin(Episode(2, "go"))
    worker.offer(frames(2))
    wait(lambda: bool(world.delivered))
    assert [(epoch, stamp) for epoch, stamp, _ in world.delivered] == [(2, 2)]


def test_frames_that_are_not_due_are_left(world: World, worker: HybridWorker) -> None:
    world.ready.set()
    world.is_due = False
    worker.begin(Episode(1, "go"))
    worker.offer(frames(1))
    world.is_due = True
    worker.offer(frames(2))
    wait(lambda: bool(world.delivered))
    assert [stamp for _, stamp, _ in world.delivered] == [2]


def test_an_instruction_that_cannot_be_is_reported_and_another_one_followed(
    world: World, worker: HybridWorker
) -> None:
    world.ready.set()
    worker.begin(Episode(1, "?"))
    wait(lambda: world.problems == ["no words"])
    worker.begin(Episode(2, "go"))
    worker.offer(frames(1))
    wait(lambda: bool(world.delivered))
    assert world.delivered[0][0] == 2
