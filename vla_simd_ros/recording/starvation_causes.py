"""Why rows ran out, from what a recording shows around it. docs/ros.md states the rule for its readers."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vla_simd_ros.nodes.demo_recording import Chunk, ExecutorReport, Recording
from vla_simd_ros.recording.run import Run

_MS = 1e6
_EXPIRED = "expired"
_LACKING = ("STARVED", "STOPPED")
# A camera has stopped when nothing came from it for so many of its usual intervals.
_MISSED_FRAMES = 3


class Cause(str, enum.Enum):
    """What made the rows run out."""

    CAMERA_LATE = "camera late"
    ENGINE_SLOW = "engine slow"
    TRANSPORT = "transport"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Starvation:
    """A time without rows: from the first control step that found none to the first that did again."""

    start: int
    end: int
    cause: Cause
    detail: str


@dataclass(frozen=True)
class _Answer:
    """A query that was answered: times of its stages, nanoseconds; the arrival where one is known."""

    sequence: int
    capture: int
    complete: int
    start: int
    published: int
    arrival: int | None


def starvations(run: Run) -> list[Starvation]:
    """All of them, with their causes."""
    periods = _periods(run.recording)
    if not periods:
        return []
    judge = _Judge(run)
    return [Starvation(start, end, *judge.cause(start, end)) for start, end in periods]


def _periods(recording: Recording) -> list[tuple[int, int]]:
    """The executor reports every change of its state at once, so its reports have all of them."""
    periods: list[tuple[int, int]] = []
    since: int | None = None
    for report in recording.executor:
        # Stopped at the start means not started: only rows that were there can run out.
        if since is None and report.state == "STARVED":
            since = report.time
        elif since is not None and report.state not in _LACKING:
            periods.append((since, report.time))
            since = None
    if since is not None:
        periods.append((since, recording.executor[-1].time))
    return periods


class _Judge:
    """Compares the answer that came too late with what is usual in the run."""

    def __init__(self, run: Run) -> None:
        recording = run.recording
        self._reports: Sequence[ExecutorReport] = recording.executor
        self._frames = run.frames
        self._answers = _answers(recording)
        self._step_ms = 1000.0 * recording.chunks[-1].step_period if recording.chunks else 0.0
        pairs = list(pairwise(self._answers))
        self._usual = {
            "set": _median(answer.complete - answer.capture for answer in self._answers),
            "idle": _median(_idle(before, answer) for before, answer in pairs),
            "engine": _median(answer.published - answer.start for answer in self._answers),
            "delivery": _median(
                answer.arrival - answer.published for answer in self._answers if answer.arrival is not None
            ),
        }

    def cause(self, start: int, end: int) -> tuple[Cause, str]:
        """The cause of a starvation, and what speaks for it."""
        if not self._answers:
            return Cause.UNKNOWN, "neither query_timing nor action_chunk was recorded"
        before = [each for each in self._answers if each.arrival is not None and each.arrival < start]
        last = before[-1] if before else None
        rejected = self._rejected(last.arrival if last is not None and last.arrival else 0, end)
        if rejected:
            return Cause.REJECTED, rejected
        after = [each for each in self._answers if last is None or each.published > last.published]
        if not after:
            return self._nothing(last, end)
        late = after[0]
        if late.arrival is None:
            return Cause.TRANSPORT, f"chunk {late.sequence} was published and did not arrive"
        if last is not None and late.sequence > last.sequence + 1:
            return Cause.TRANSPORT, f"chunk {last.sequence + 1} did not arrive"
        return self._compare(last, late)

    def _rejected(self, since: int, until: int) -> str:
        """Which chunks were rejected in a time for another reason than being late."""
        earlier = [report for report in self._reports if report.time <= since]
        later = [report for report in self._reports if report.time <= until]
        if not later:
            return ""
        known = earlier[-1].rejections if earlier else {}
        new = {
            reason: count - known.get(reason, 0)
            for reason, count in later[-1].rejections.items()
            if reason != _EXPIRED and count > known.get(reason, 0)
        }
        return ", ".join(f"{count} chunks rejected: {reason}" for reason, count in new.items())

    def _nothing(self, last: _Answer | None, end: int) -> tuple[Cause, str]:
        """No query was answered any more."""
        since = last.published if last is not None else 0
        for topic, frames in self._frames.items():
            stamps = [stamp for stamp, _ in frames]
            usual = _median(b - a for a, b in pairwise(stamps))
            newest = max((stamp for stamp in stamps if stamp <= end), default=since)
            if end - newest > _MISSED_FRAMES * usual:
                return Cause.CAMERA_LATE, f"no frame on {topic} for {(end - newest) / _MS:.0f} ms"
        return Cause.ENGINE_SLOW, "no query was answered any more"

    def _compare(self, last: _Answer | None, late: _Answer) -> tuple[Cause, str]:
        """Which part of the answer that was late took longer than usual, and by how much."""
        camera = max(0.0, late.complete - late.capture - self._usual["set"])
        if last is not None:
            camera = max(camera, _idle(last, late) - self._usual["idle"])
        engine = late.published - late.start
        delivery = (late.arrival or 0) - late.published
        excess = {
            Cause.CAMERA_LATE: camera,
            Cause.ENGINE_SLOW: engine - self._usual["engine"],
            Cause.TRANSPORT: delivery - self._usual["delivery"],
        }
        cause = max(excess, key=lambda each: excess[each])
        if excess[cause] / _MS < self._step_ms:
            return Cause.ENGINE_SLOW, (
                f"chunk {late.sequence} came as usual, "
                f"{((late.arrival or 0) - late.capture) / _MS:.0f} ms after its observation: "
                "the window is too short for that"
            )
        what = {
            Cause.CAMERA_LATE: f"the frames of chunk {late.sequence}",
            Cause.ENGINE_SLOW: f"the query of chunk {late.sequence}",
            Cause.TRANSPORT: f"the way of chunk {late.sequence}",
        }
        return cause, f"{what[cause]} took {excess[cause] / _MS:.0f} ms longer than usual"


def _idle(before: _Answer, answer: _Answer) -> int:
    """How long the policy had nothing to do but wait for frames."""
    return max(0, answer.complete - before.published)


def _answers(recording: Recording) -> list[_Answer]:
    """Queries by their order; those whose chunk is not in the recording too."""
    chunks = {chunk.stamp: chunk for chunk in recording.chunks}
    arrivals = {each.stamp: _arrival(each.budget.total_ms, each.budget.stages["command_ms"], each.stamp)
                for each in recording.budgets}  # fmt: skip
    answers = []
    sequence = 0
    for timing in recording.timings:
        chunk: Chunk | None = chunks.get(timing.stamp)
        sequence = chunk.sequence if chunk is not None else sequence + 1
        spent = timing.milliseconds
        complete = timing.stamp + round((spent["transport_ms"] + spent["sync_ms"]) * _MS)
        answers.append(
            _Answer(
                sequence=sequence,
                capture=timing.stamp,
                complete=complete,
                start=timing.stamp + round(spent["observation_age_ms"] * _MS),
                published=timing.stamp + round(spent["observation_to_publish_ms"] * _MS),
                arrival=arrivals.get(timing.stamp, chunk.arrival if chunk is not None else None),
            )
        )
    return answers


def _arrival(total_ms: float, command_ms: float, stamp: int) -> int:
    return stamp + round((total_ms - command_ms) * _MS)


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return float(statistics.median(found)) if found else 0.0
