"""The injected delay: it is drawn for each query, and ends at once when it is to."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from vla_simd_ros.control.delay_distribution import DelayDistribution, delay_distribution
from vla_simd_ros.inference import Cancelled
from vla_simd_ros.nodes.injected_delay import InjectedDelay

PATIENCE_S = 20.0


def test_a_delay_is_drawn_for_each_wait() -> None:
    drawn: list[int] = []

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        drawn.append(count)
        return np.zeros(count)

    delay = InjectedDelay(DelayDistribution("counted", draw))
    delay.wait()
    delay.wait()
    assert drawn == [1, 1]


def test_cancelling_ends_the_delay_that_runs_and_the_following_ones_until_resumed() -> None:
    delay = InjectedDelay(delay_distribution("fixed:60000"))
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(Cancelled):
            delay.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    delay.cancel()
    assert ended.wait(PATIENCE_S)
    with pytest.raises(Cancelled):
        delay.wait()
    short = InjectedDelay(delay_distribution("fixed:0"))
    short.cancel()
    short.resume()
    short.wait()
