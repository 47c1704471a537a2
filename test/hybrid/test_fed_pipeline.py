from __future__ import annotations

import threading
import time

import pytest

from vla_simd_ros.hybrid.fed_pipeline import FedPipeline
from vla_simd_ros.hybrid.frame_pipeline import FrameResult, PipelineError

PATIENCE_S = 60.0


class Fed:
    """A fed pipeline whose second stage says how often it ran, and fails the ``fails`` th time."""

    def __init__(self, fails: int = 0) -> None:
        self.results: list[FrameResult] = []
        self.failures: list[PipelineError] = []
        self.ended = threading.Event()
        self._fails = fails
        self._runs = 0
        self.pipeline = FedPipeline(
            lambda frame: frame + 1,
            self.suffix,
            1,
            on_result=self.keep,
            on_failure=self.fail,
            clock=time.monotonic,
        )

    def suffix(self, value: int) -> int:
        self._runs += 1
        if self._runs == self._fails:
            raise ValueError("enough")
        return 10 * value

    def keep(self, result: FrameResult) -> None:
        self.results.append(result)
        if len(self.results) == 20:
            self.ended.set()

    def fail(self, error: PipelineError) -> None:
        self.failures.append(error)
        self.ended.set()


def test_frames_keep_coming_by_themselves() -> None:
    fed = Fed()
    assert fed.ended.wait(PATIENCE_S), "frames stopped coming"
    fed.pipeline.check()
    fed.pipeline.close()
    assert {result.value for result in fed.results} == {20}
    numbers = [result.number for result in fed.results]
    assert numbers == sorted(numbers)
    assert fed.pipeline.counts.under_way == 0
    fed.pipeline.feed()  # closed: nothing more goes in
    assert fed.pipeline.counts.under_way == 0


@pytest.mark.parametrize("fails", [1, 5])
def test_a_failure_is_told_once_and_ends_it(fails: int) -> None:
    fed = Fed(fails)
    assert fed.ended.wait(PATIENCE_S), "no failure was told"
    fed.pipeline.close()
    (failure,) = fed.failures
    assert "enough" in str(failure)
    assert len(fed.results) == fails - 1
