"""What is measured of a split policy whose stages only count; times only as such."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from vla_simd_ros.hybrid.frame_pipeline import PipelineError
from vla_simd_ros.hybrid.measured_pipeline import MeasuredPipeline, measure_pipeline


class Counting:
    """Stages of no work, which tell whether they ever ran at the same time as themselves."""

    def __init__(self, fails_at: int = -1) -> None:
        self.calls = {"prefix": 0, "suffix": 0}
        self._busy = {"prefix": threading.Lock(), "suffix": threading.Lock()}
        self._fails_at = fails_at

    def prefix(self, request: Any) -> Any:
        return self._run("prefix", request)

    def suffix(self, request: Any) -> Any:
        if self.calls["suffix"] == self._fails_at:
            raise ValueError("no more")
        return self._run("suffix", request)

    def _run(self, name: str, request: Any) -> Any:
        assert self._busy[name].acquire(blocking=False)
        self.calls[name] += 1
        self._busy[name].release()
        return request


def test_as_many_frames_as_asked_for_are_measured() -> None:
    policy = Counting()
    found = measure_pipeline(policy, object(), 7)  # type: ignore[arg-type]
    assert found.frames == 7
    assert policy.calls["suffix"] >= 2 + 7 + 2 + 7
    assert policy.calls["prefix"] >= policy.calls["suffix"]
    assert found.prefix_s > 0.0
    assert found.serial_s >= found.prefix_s


def test_a_stage_that_fails_is_told() -> None:
    with pytest.raises(PipelineError, match=r"the suffix failed on frame \d+: ValueError: no more"):
        measure_pipeline(Counting(fails_at=2 + 3 + 1), object(), 6)  # type: ignore[arg-type]


def test_the_comparisons() -> None:
    found = MeasuredPipeline(
        prefix_s=0.3, suffix_s=0.2, serial_s=0.5, interval_s=0.25, latency_s=0.6, frames=9
    )
    assert found.predicted_s == 0.3
    assert found.speedup == 2.0
