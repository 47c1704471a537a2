"""Signs of life of work that takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PERIOD_S = 4.0
"""Seconds between two beats: nobody is to wait longer than five without a word."""


@contextmanager
def heartbeat(beat: Callable[[float], None]) -> Iterator[None]:
    """Calls ``beat`` with the seconds so far, in another thread, every few seconds while the block works."""
    ended = threading.Event()
    start = time.monotonic()

    def run() -> None:
        while not ended.wait(PERIOD_S):
            beat(time.monotonic() - start)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
