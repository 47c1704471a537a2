"""A split policy's frames, measured: one after the other, and overlapping."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.hybrid.fed_pipeline import FedPipeline
from vla_simd_ros.hybrid.frame_pipeline import FrameResult, PipelineError, Stage
from vla_simd_ros.hybrid.placement import Placement
from vla_simd_ros.hybrid.split_policy import Request, SplitPolicy

_WARM_UP = 2
_TURN_S = 0.01


@dataclass(frozen=True)
class MeasuredPipeline:
    """Medians in seconds.

    prefix_s, suffix_s: of either stage while the other rests
    serial_s: from result to result, one frame at a time
    interval_s: the same with frames that overlap
    latency_s: of one of these, from where its first stage began
    frames: results that overlapped
    """

    prefix_s: float
    suffix_s: float
    serial_s: float
    interval_s: float
    latency_s: float
    frames: int

    @property
    def predicted_s(self) -> float:
        """The interval that the stages' own times lead to."""
        return max(self.prefix_s, self.suffix_s)

    @property
    def speedup(self) -> float:
        """Overlapping frames against one at a time."""
        return self.serial_s / self.interval_s


def measure_pipeline(
    policy: SplitPolicy, request: Request, frames: int, places: tuple[Placement, Placement] | None = None
) -> MeasuredPipeline:
    """Half of the serial frames, all the overlapping ones, and the other half.

    The same frame over and over: its actions do not matter here. Stages that overlap run in ``places``, if
    given. Raises PipelineError for a stage that fails.
    """
    for _ in range(_WARM_UP):
        policy.suffix(policy.prefix(request))
    serial = _serial(policy, request, frames // 2)
    results = _overlapping(policy, request, frames, places)
    serial += _serial(policy, request, frames - frames // 2)
    ends = [_known(result.times.suffix_ended) for result in results]
    return MeasuredPipeline(
        prefix_s=statistics.median(middle - start for start, middle, _ in serial),
        suffix_s=statistics.median(end - middle for _, middle, end in serial),
        serial_s=statistics.median(end - start for start, _, end in serial),
        interval_s=statistics.median(b - a for a, b in itertools.pairwise(ends)),
        latency_s=statistics.median(
            end - _known(result.times.prefix_began) for end, result in zip(ends, results, strict=True)
        ),
        frames=len(results),
    )


def _serial(policy: SplitPolicy, request: Request, frames: int) -> list[tuple[float, float, float]]:
    """Start, hand-over and end of each frame."""
    times = []
    for _ in range(frames):
        start = time.perf_counter()
        crossed = policy.prefix(request)
        middle = time.perf_counter()
        policy.suffix(crossed)
        times.append((start, middle, time.perf_counter()))
    return times


def _overlapping(
    policy: SplitPolicy, request: Request, frames: int, places: tuple[Placement, Placement] | None
) -> list[FrameResult]:
    """The results of frames that come as fast as the first stage takes them."""
    results: list[FrameResult] = []
    failures: list[PipelineError] = []
    moved = threading.Condition()

    def tell(result: FrameResult) -> None:
        with moved:
            results.append(result)
            moved.notify()

    def fail(error: PipelineError) -> None:
        with moved:
            failures.append(error)
            moved.notify()

    first, second = places or (None, None)
    pipeline = FedPipeline(
        _placed(policy.prefix, first),
        _placed(policy.suffix, second),
        request,
        on_result=tell,
        on_failure=fail,
        clock=time.perf_counter,
    )
    while len(results) < frames + _WARM_UP and not failures:
        with moved:
            moved.wait(_TURN_S)
        pipeline.check()
    pipeline.close()
    if failures:
        raise failures[0]
    return results[_WARM_UP : _WARM_UP + frames]


def _placed(stage: Stage, place: Placement | None) -> Stage:
    """The stage, in a thread that runs there."""
    if place is None:
        return stage

    def run(value: Any) -> Any:
        place.take()
        return stage(value)

    return run


def _known(value: float | None) -> float:
    assert value is not None
    return value
