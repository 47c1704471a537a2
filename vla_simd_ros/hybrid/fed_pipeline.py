"""A pipeline that never wants for frames: the same one over and over, as fast as the first stage takes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from vla_simd_ros.hybrid.frame_pipeline import (
    FramePipeline,
    FrameResult,
    PipelineCounts,
    PipelineError,
    Stage,
)

_MOST_UNDER_WAY = 3
"""One on each stage and one that waits."""
_STALL_S = 60.0


class FedPipeline:
    """Frames are submitted by whichever of the pipeline's threads makes room, so that no stage waits for
    another thread to come to it. ``on_result`` and ``on_failure`` are as of FramePipeline."""

    def __init__(
        self,
        prefix: Stage,
        suffix: Stage,
        frame: Any,
        *,
        on_result: Callable[[FrameResult], None],
        on_failure: Callable[[PipelineError], None],
        clock: Callable[[], float],
    ) -> None:
        self._frame = frame

        def begin(value: Any) -> Any:
            self.feed()
            return prefix(value)

        def end(result: FrameResult) -> None:
            self.feed()
            on_result(result)

        self._pipeline = FramePipeline(
            begin,
            suffix,
            on_result=end,
            on_drop=lambda number, reason: None,
            on_failure=on_failure,
            clock=clock,
            stall_s=_STALL_S,
        )
        self.feed()

    @property
    def counts(self) -> PipelineCounts:
        """Counts so far."""
        return self._pipeline.counts

    def feed(self) -> None:
        """Submit as many frames as there is room for."""
        with contextlib.suppress(PipelineError):  # it failed or was closed just now, and says so elsewhere
            for _ in range(_MOST_UNDER_WAY - self._pipeline.counts.under_way):
                self._pipeline.submit(self._frame)

    def check(self) -> None:
        """Find a stage that stalls."""
        self._pipeline.check()

    def close(self) -> None:
        """Drop what is under way and end the threads."""
        self._pipeline.close(_STALL_S)
