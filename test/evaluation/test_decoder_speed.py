"""Speeds of conditions that take turns on the same observations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.decoding.base import Decoded, Exit, Pass
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.decoder_speed import Asked, Speed, measure_speeds
from vla_simd_ros.inference import Query, Timing
from vla_simd_ros.observation import Observation


class Scripted:
    """A policy whose n-th query takes ``seconds[n]``, in passes of ``rows`` tokens each."""

    def __init__(self, name: str, calls: list[str], seconds: list[float], rows: int) -> None:
        self._name = name
        self._calls = calls
        self._seconds = iter(seconds)
        self._rows = rows
        self.told: list[str] = []

    @property
    def set_decoder(self) -> Callable[..., None]:
        def keep(decoder: str, **_: Any) -> None:
            self._decoder = decoder

        return keep

    def set_instruction(self, text: str) -> float:
        self.told.append(text)
        return 0.0

    def warm_up(self) -> None:
        self._calls.append(f"{self._name} warm")

    def query(self, observation: Observation) -> Query:
        self._calls.append(f"{self._name} {self._decoder} {self.told[-1]}")
        seconds, count = next(self._seconds), 12 // self._rows
        one = Pass(self._rows, 0, tuple(range(self._rows)), self._rows, 0.9, seconds / count)
        decoded = Decoded(tuple(range(12)), (one,) * count, Exit.FIXED_POINT, True)
        return Query(np.zeros((2, 6), np.float32), Timing(0, 0, 0, 0, 2e3 * seconds), decoded)


def asked(*instructions: str) -> list[Asked]:
    return [Asked(text, Observation({}, None)) for text in instructions]


def test_conditions_take_turns_and_medians_count() -> None:
    calls: list[str] = []
    slow = Scripted("slow", calls, [4.0, 9.0, 3.0, 6.0, 6.0, 6.0], rows=1)
    fast = Scripted("fast", calls, [1.0, 2.0, 3.0, 1.0, 1.0, 1.0], rows=6)
    conditions = [(slow, DecoderOptions("autoregressive")), (fast, DecoderOptions("jacobi"))]
    found = measure_speeds(conditions, asked("b", "a"), 3, lambda text: None)

    turns = ["slow autoregressive", "fast jacobi", "fast jacobi", "slow autoregressive"]
    turns += ["slow autoregressive", "fast jacobi"]
    expected = [f"{turn} {text}" for text in "ab" for turn in turns]
    assert calls == ["slow warm", "fast warm", *expected]
    assert slow.told == fast.told == ["a", "b"]
    assert found == [
        Speed((12, 12), (12, 12), (4.0, 6.0), (8e3, 12e3)),
        Speed((2, 2), (12, 12), (2.0, 1.0), (4e3, 2e3)),
    ]


def test_rates_are_of_queries_and_of_all_together() -> None:
    speed = Speed((2, 4), (12, 12), (2.0, 1.0), (4e3, 2e3))
    assert speed.mean_passes == 3
    assert speed.fixed_per_pass == 4
    assert speed.tokens_per_second == (6.0, 8.0, 12.0)
    assert speed.mean_query_ms == 3e3


def test_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("vla_simd_ros.evaluation.decoder_speed.time.monotonic", lambda: next(clock))
    said: list[str] = []
    policy = Scripted("p", [], [1.0] * 2, rows=12)
    measure_speeds([(policy, DecoderOptions("jacobi"))], asked("a", "a"), 1, said.append)
    assert said == ["measured 1 of 2 observations", "measured 2 of 2 observations"]
    assert math.isfinite(next(clock))
