"""Makes a policy slower than it is, to try how a robot copes: a delay between a query's end and its chunk."""

from __future__ import annotations

import threading

import numpy as np

from vla_simd_ros.control.delay_distribution import DelayDistribution
from vla_simd_ros.inference import Cancelled


class InjectedDelay:
    """Waits for a time drawn anew for each query; the next query starts only afterwards."""

    def __init__(self, distribution: DelayDistribution) -> None:
        self._distribution = distribution
        self._rng = np.random.default_rng()
        self._cancelled = threading.Event()

    def wait(self) -> None:
        """Return when the delay is over.

        Raises:
            Cancelled: it was ended before, by :meth:`cancel`.
        """
        delay_s = float(self._distribution.draw(self._rng, 1)[0])
        if self._cancelled.wait(delay_s):
            raise Cancelled("the injected delay was cancelled")

    def cancel(self) -> None:
        """From any thread: end the delay that runs, and those until :meth:`resume`, at once."""
        self._cancelled.set()

    def resume(self) -> None:
        """Let delays last again."""
        self._cancelled.clear()
