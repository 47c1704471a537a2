"""Stand-ins for message_filters' SimpleFilter and ApproximateTimeSynchronizer, with the same interface.

Used where message_filters is not installed; the same message sequences give the same sets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from vla_simd_ros.nodes.messages import nanoseconds


class SimpleFilter:
    """A source of messages that others listen to."""

    def __init__(self) -> None:
        self._callbacks: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def registerCallback(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call ``callback(*messages, *args)`` for each message or set of messages."""
        self._callbacks.append((callback, args))

    def signalMessage(self, *messages: Any) -> None:
        """Hand messages to the listeners."""
        for callback, args in self._callbacks:
            callback(*messages, *args)


class ApproximateTimeSynchronizer(SimpleFilter):
    """Joins messages of several sources whose header stamps differ by less than ``slop`` seconds.

    An arriving message is matched with the nearest stamps of every other source. Messages of a set are used
    up; older ones stay until their queue is full.

    Args:
        fs: the sources, in the order of the callback's arguments.
        queue_size: messages kept of each source.
        slop: largest difference of stamps in a set, seconds.
    """

    def __init__(self, fs: Sequence[Any], queue_size: int, slop: float) -> None:
        super().__init__()
        self._queue_size = queue_size
        self._slop_ns = round(slop * 1e9)
        self._queues: list[dict[int, Any]] = [{} for _ in fs]
        self._lock = threading.Lock()
        for index, source in enumerate(fs):
            source.registerCallback(self._add, index)

    def _add(self, message: Any, index: int) -> None:
        time_ns = nanoseconds(message.header.stamp)
        with self._lock:
            queue = self._queues[index]
            queue[time_ns] = message
            while len(queue) > self._queue_size:
                del queue[min(queue)]
            chosen = self._match(time_ns, index)
            messages = [q.pop(t) for q, t in zip(self._queues, chosen, strict=True)] if chosen else []
        if messages:
            self.signalMessage(*messages)

    def _match(self, time_ns: int, index: int) -> list[int] | None:
        """Stamps of a set with the message that arrived, nearest ones first, or None."""
        if time_ns not in self._queues[index]:
            return None
        candidates = [
            [time_ns] if i == index else self._nearest(queue, time_ns) for i, queue in enumerate(self._queues)
        ]
        for stamps in product(*candidates):
            if max(stamps) - min(stamps) < self._slop_ns:
                return list(stamps)
        return None

    def _nearest(self, queue: dict[int, Any], time_ns: int) -> list[int]:
        near = (t for t in queue if abs(t - time_ns) <= self._slop_ns)
        return sorted(near, key=lambda t: abs(t - time_ns))
