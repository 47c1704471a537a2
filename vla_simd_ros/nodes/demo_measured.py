"""What a run of a series came to, and what was to be expected of it: functions of its recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.control.delay_distribution import DelayDistribution
from vla_simd_ros.control.frame_schedule import (
    Draw,
    FrameSchedule,
    SupplyPrediction,
    in_measured_order,
    predict_supply,
)
from vla_simd_ros.control.schedule import Seconds
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.nodes.demo_recording import Recording
from vla_simd_ros.nodes.demo_report import observation_ages

_MS = 1e-3


@dataclass(frozen=True)
class Measured:
    """Counts between the first and the last report of the executor; ages in seconds (NaN: no row)."""

    seconds: float
    executed: int
    starved: int
    stale: int
    chunks: int
    mean_age_s: float
    mean_first_age_s: float
    cpu_share: float

    @property
    def starved_share(self) -> float:
        """Share of the control steps without a row."""
        steps = self.executed + self.starved
        return self.starved / steps if steps else math.nan


def measured(recording: Recording, control_rate: float, cpu_s: float) -> Measured:
    """The counts of a run; ``cpu_s``: what the policy node computed meanwhile.

    Where no row was executed at all, every control step counts as one without: the executor itself counts
    from the first row on.
    """
    first, last = recording.executor[0], recording.executor[-1]
    seconds = (last.time - first.time) * 1e-9

    def grown(name: str) -> int:
        return int(last.values[name] - first.values[name])

    executed, starved = grown("executed_steps"), grown("starved_steps")
    if not executed:
        starved = round(seconds * control_rate)
    takeovers = [each.budget.total_ms for each in recording.budgets]
    ages = [age_ms for _, age_ms in observation_ages(recording)]
    return Measured(
        seconds=seconds,
        executed=executed,
        starved=starved,
        stale=grown("stale_rows_dropped"),
        chunks=grown("chunks_received"),
        mean_age_s=float(np.mean(ages)) * _MS if ages else math.nan,
        mean_first_age_s=float(np.mean(takeovers)) * _MS if takeovers else math.nan,
        cpu_share=cpu_s / recording.seconds(recording.end),
    )


@dataclass(frozen=True)
class NodeTimes:
    """Times in seconds of a run besides the injected delay: per query, and typical ones around it."""

    queries: Seconds
    ready: float
    transport: float


def node_times(recording: Recording, publish_s: float) -> NodeTimes:
    """From the query timings of a run; ``publish_s``: from a query's end to publication, without a delay."""
    timings = [timing.milliseconds for timing in recording.timings]
    published = {(timing.stamp, timing.epoch): timing.milliseconds for timing in recording.timings}
    flights = [
        (chunk.arrival - chunk.stamp) * 1e-9
        - published[chunk.stamp, chunk.epoch]["observation_to_publish_ms"] * _MS
        for chunk in recording.chunks
        if (chunk.stamp, chunk.epoch) in published
    ]
    return NodeTimes(
        queries=np.array([timing["total_ms"] for timing in timings]) * _MS + publish_s,
        ready=_median([timing["transport_ms"] + timing["sync_ms"] for timing in timings]) * _MS,
        transport=max(0.0, _median(flights)),
    )


def publish_time(recording: Recording) -> float:
    """Typical time from a query's end to its publication in a run without injected delay, seconds."""
    return _median([timing.milliseconds["publish_ms"] for timing in recording.timings]) * _MS


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0


@dataclass(frozen=True)
class NodeRates:
    """Rates of the nodes in a series, 1/s."""

    camera: float
    control: float


def predict(
    recording: Recording,
    times: NodeTimes,
    rates: NodeRates,
    delay: DelayDistribution,
    found: Measured,
    confidence: float = 0.95,
) -> SupplyPrediction:
    """What a run of as many control steps as ``found`` has was to count, with delays drawn anew."""
    chunk, mode = recording.chunks[-1], Mode(recording.executor[-1].mode)
    schedule = FrameSchedule(
        rates.camera, rates.control, chunk.window, chunk.step_period, times.ready, times.transport
    )
    seconds = (found.executed + found.starved) / rates.control
    return predict_supply(
        _queries(times.queries, delay), schedule, mode, seconds, runs=400, confidence=confidence
    )


def _queries(sample: Seconds, delay: DelayDistribution) -> Draw:
    policy = in_measured_order(sample)
    return lambda rng, count: policy(rng, count) + delay.draw(rng, count)
