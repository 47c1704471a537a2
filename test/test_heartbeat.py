"""Beats come while the block works, and none after it."""

from __future__ import annotations

import threading

import pytest

from vla_simd_ros import heartbeat as module
from vla_simd_ros.heartbeat import heartbeat


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD_S", 0.001)


def test_beats_while_the_block_works() -> None:
    beats: list[float] = []
    enough = threading.Event()

    def beat(seconds: float) -> None:
        beats.append(seconds)
        if len(beats) == 3:
            enough.set()

    with heartbeat(beat):
        assert enough.wait(30.0)
    counted = len(beats)
    assert beats == sorted(beats) and beats[0] > 0.0
    assert len(beats) == counted


def test_a_failing_block_ends_the_beats() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="broken"), heartbeat(lambda _: None):
        raise ValueError("broken")
    assert threading.active_count() == before
