"""Sustained load: the first and the last quarter of a minute of a long run of queries without pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.sensors import Reading, summarize_readings
from vla_simd_ros.benchmarks.statistics import Summary, summarize

WINDOW_S = 15.0


@dataclass(frozen=True)
class Soak:
    """Query times, and the sensors, at the start and at the end of ``seconds`` of continuous load."""

    seconds: float
    first: Summary
    last: Summary
    first_reading: Reading = Reading()  # noqa: RUF009 -- immutable
    last_reading: Reading = Reading()  # noqa: RUF009


def check_soak(seconds: float) -> None:
    """Raises ``BenchmarkError`` when the run would not hold both windows."""
    if not seconds >= 2 * WINDOW_S:
        raise BenchmarkError(f"soak of {seconds:g} s: expected at least {2 * WINDOW_S:g} s")


def summarize_soak(
    samples: Sequence[tuple[float, float]],
    seconds: float,
    readings: Sequence[tuple[float, Reading]] = (),
) -> Soak:
    """Summaries of the queries that ended in the first, and of those that began in the last, 15 s.

    ``samples`` are (end in s since the start, time in ms), ``readings`` (s since the start, sensors).
    Raises ``BenchmarkError`` when a window holds no whole query.
    """
    check_soak(seconds)
    first = [ms for end, ms in samples if end <= WINDOW_S]
    last = [ms for end, ms in samples if end - ms / 1e3 >= seconds - WINDOW_S]
    if not first or not last:
        raise BenchmarkError(f"soak of {seconds:g} s: a query takes longer than the {WINDOW_S:g} s window")
    early = [reading for at, reading in readings if at <= WINDOW_S]
    late = [reading for at, reading in readings if at >= seconds - WINDOW_S]
    return Soak(
        seconds, summarize(first), summarize(last), summarize_readings(early), summarize_readings(late)
    )
