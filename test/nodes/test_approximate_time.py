"""Joining messages by stamp: our synchronizer, and that of message_filters with the same sequences."""

from __future__ import annotations

import importlib
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from std_msgs.msg import Header

from vla_simd_ros.nodes import approximate_time
from vla_simd_ros.nodes.messages import nanoseconds, stamp
from vla_simd_ros.nodes.synchronizer import FrameSynchronizer

MS = 1_000_000
SECOND = 1_000 * MS


def message(time_ms: float) -> Any:
    return SimpleNamespace(header=Header(stamp=stamp(SECOND + round(time_ms * MS))))


def joined(
    module: Any, sources: int, events: list[tuple[int, float]], slop_s: float = 0.02, queue_size: int = 10
) -> list[tuple[float, ...]]:
    """Feed (source, milliseconds) events in order; the stamps of each set that came out."""
    filters = [module.SimpleFilter() for _ in range(sources)]
    synchronizer = module.ApproximateTimeSynchronizer(filters, queue_size, slop_s)
    sets: list[tuple[float, ...]] = []
    synchronizer.registerCallback(
        lambda *messages: sets.append(tuple((nanoseconds(m.header.stamp) - SECOND) / MS for m in messages))
    )
    for source, time_ms in events:
        filters[source].signalMessage(message(time_ms))
    return sets


def ours(sources: int, events: list[tuple[int, float]], **options: Any) -> list[tuple[float, ...]]:
    return joined(approximate_time, sources, events, **options)


def test_frames_of_the_same_moment_are_joined_in_source_order() -> None:
    assert ours(2, [(1, 5), (0, 0), (0, 33), (1, 38)]) == [(0, 5), (33, 38)]


def test_frames_further_apart_than_the_slop_are_not_joined() -> None:
    assert ours(2, [(0, 0), (1, 20), (0, 33), (1, 54)]) == [(33, 20)]
    assert ours(2, [(0, 0), (1, 21), (0, 50), (1, 71)]) == []


def test_the_nearest_frame_is_taken() -> None:
    assert ours(2, [(0, 0), (0, 10), (1, 8)]) == [(10, 8)]
    assert ours(2, [(0, 0), (0, 10), (1, 2)]) == [(0, 2)]


def test_a_frame_is_used_once() -> None:
    assert ours(2, [(0, 0), (1, 1), (1, 2)]) == [(0, 1)]


def test_the_oldest_frames_leave_a_full_queue() -> None:
    assert ours(2, [(0, 0), (0, 100), (0, 200), (1, 0)], queue_size=2) == []
    assert ours(2, [(0, 0), (0, 100), (0, 200), (1, 100)], queue_size=2) == [(100, 100)]


def test_a_set_of_three_fits_the_slop_as_a_whole() -> None:
    assert ours(3, [(0, 0), (1, 15), (2, 18)]) == [(0, 15, 18)]
    assert ours(3, [(0, 0), (2, 30), (1, 15)]) == []
    assert ours(3, [(0, 0), (0, 12), (2, 30), (1, 15)]) == [(12, 15, 30)]


def test_one_source_passes_through() -> None:
    assert ours(1, [(0, 0), (0, 33)]) == [(0,), (33,)]


def test_the_frame_synchronizer_names_the_cameras_and_can_be_reset() -> None:
    sets: list[dict[str, Any]] = []
    synchronizer = FrameSynchronizer(["front", "wrist"], 0.02, sets.append)
    first, second = message(0), message(3)
    synchronizer.add("wrist", second)
    synchronizer.add("front", first)
    assert sets == [{"front": first, "wrist": second}]
    synchronizer.add("front", message(100))
    synchronizer.reset()
    synchronizer.add("wrist", message(100))
    assert len(sets) == 1


def random_events(seed: int, sources: int) -> list[tuple[int, float]]:
    """Cameras of one rate with jitter, losses and delays."""
    rng = np.random.default_rng(seed)
    events: list[tuple[float, int, float]] = []
    for source in range(sources):
        for i in range(60):
            if rng.random() < 0.8:
                captured = round(33.0 * i + rng.uniform(-12, 12), 3)
                events.append((captured + rng.uniform(0, 60), source, captured))
    return [(source, captured) for _, source, captured in sorted(events)]


@pytest.mark.needs_message_filters
def test_message_filters_makes_the_same_sets_and_is_used() -> None:
    real = importlib.import_module("message_filters")
    for sources, seed, queue_size in product((1, 2, 3), range(8), (2, 10)):
        events = random_events(seed, sources)
        expected = joined(real, sources, events, queue_size=queue_size)
        assert ours(sources, events, queue_size=queue_size) == expected
        assert len(expected) > 5
    module = importlib.import_module("vla_simd_ros.nodes.synchronizer")
    assert module.ApproximateTimeSynchronizer is real.ApproximateTimeSynchronizer
