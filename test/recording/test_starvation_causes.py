"""Each cause of a starvation, from recordings of runs in which one thing went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.recording.run import read_run
from vla_simd_ros.recording.starvation_causes import Cause, Starvation, starvations


def causes(made: Any, tmp_path: Path) -> list[Starvation]:
    return starvations(read_run(made.write(tmp_path / "bag")))


def test_a_run_that_is_supplied_has_no_starvation(scene: Any, tmp_path: Path) -> None:
    assert causes(scene(), tmp_path) == []


def at_chunk(number: int, fault: float, usual: float) -> Any:
    """A duration by the number of a chunk."""
    return lambda each: fault if each == number else usual


def delayed_frames(time: int) -> float:
    return 400.0 if 1000 < time < 1350 else 5.0


@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ({"query_ms": at_chunk(12, 500.0, 100.0)}, Cause.ENGINE_SLOW, "query of chunk 12 took 400 ms"),
        ({"delivery_ms": at_chunk(12, 450.0, 2.0)}, Cause.TRANSPORT, "way of chunk 12 took 448 ms"),
        ({"transport_ms": delayed_frames}, Cause.CAMERA_LATE, "frames of chunk"),
        ({"camera_off": (1000, 1500)}, Cause.CAMERA_LATE, "frames of chunk"),
        ({"lost": (12, 13)}, Cause.TRANSPORT, "chunk 12 was published and did not arrive"),
        ({"rejected": (12, 13)}, Cause.REJECTED, "chunks rejected: wrong_shape"),
    ],
    ids=["engine", "delivery", "camera transport", "camera silent", "lost chunk", "rejected"],
)
def test_one_thing_goes_wrong(
    scene: Any, tmp_path: Path, fault: dict[str, Any], cause: Cause, words: str
) -> None:
    (found,) = causes(scene(**fault), tmp_path)
    assert found.cause is cause
    assert words in found.detail
    assert found.end > found.start


def test_a_policy_that_is_always_too_slow_is_named_with_its_delay(scene: Any, tmp_path: Path) -> None:
    found = causes(scene(query_ms=at_chunk(0, 0.0, 230.0)), tmp_path)
    assert len(found) > 2
    assert {each.cause for each in found} == {Cause.ENGINE_SLOW}
    assert "the window is too short" in found[1].detail


def test_frames_that_end_are_seen_by_their_absence(scene: Any, tmp_path: Path) -> None:
    (found,) = causes(scene(camera_off=(2000, 4000)), tmp_path)
    assert found.cause is Cause.CAMERA_LATE
    assert "no frame on /camera/front/image_raw for" in found.detail


def test_queries_that_end_while_frames_come_are_the_engine_s(scene: Any, tmp_path: Path) -> None:
    (found,) = causes(scene(query_ms=at_chunk(20, 1e5, 100.0)), tmp_path)
    assert (found.cause, found.detail) == (Cause.ENGINE_SLOW, "no query was answered any more")


def test_two_starvations_have_their_own_causes(scene: Any, tmp_path: Path) -> None:
    made = scene(query_ms=at_chunk(20, 500.0, 100.0), camera_off=(1000, 1500))
    assert [each.cause for each in causes(made, tmp_path)] == [Cause.CAMERA_LATE, Cause.ENGINE_SLOW]


def test_chunks_carry_the_timing_that_was_not_recorded(scene: Any, tmp_path: Path) -> None:
    made = scene(query_ms=at_chunk(12, 500.0, 100.0), without=("/query_timing",))
    (found,) = causes(made, tmp_path)
    assert found.cause is Cause.ENGINE_SLOW and "query of chunk 12 took 400 ms" in found.detail


def test_without_queries_and_chunks_the_cause_is_unknown(scene: Any, tmp_path: Path) -> None:
    made = scene(query_ms=at_chunk(12, 500.0, 100.0), without=("/query_timing", "/action_chunk"))
    (found,) = causes(made, tmp_path)
    assert found.cause is Cause.UNKNOWN and "neither query_timing nor action_chunk" in found.detail
