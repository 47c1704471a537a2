from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.sensors import Reading
from vla_simd_ros.benchmarks.soak import check_soak, summarize_soak


def test_windows_hold_whole_queries_of_the_start_and_the_end() -> None:
    samples = [(float(end), 1000.0 if end <= 50 else 2000.0) for end in range(1, 91)]
    soak = summarize_soak(samples, 90.0)
    assert (soak.first.median_ms, soak.first.n) == (1000.0, 15)
    assert soak.last.median_ms == 2000.0
    assert soak.last.n == 14  # those that began at 75 s or later took 2 s: ends 77 to 90


def test_sensors_are_told_of_both_windows() -> None:
    samples = [(float(end), 1000.0) for end in range(1, 91)]
    readings = [(float(at), Reading(40.0 + at, 3000.0 - at)) for at in range(91)]
    soak = summarize_soak(samples, 90.0, readings)
    assert soak.first_reading == Reading(47.5, 2992.5)
    assert soak.last_reading == Reading(122.5, 2917.5)
    assert summarize_soak(samples, 90.0).last_reading == Reading(None, None)


def test_too_short_a_soak_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="soak of 10 s: expected at least 30 s"):
        check_soak(10.0)
    with pytest.raises(BenchmarkError):
        check_soak(float("nan"))


def test_queries_longer_than_the_window_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="longer than the 15 s window"):
        summarize_soak([(20.0, 20_000.0), (40.0, 20_000.0)], 40.0)
