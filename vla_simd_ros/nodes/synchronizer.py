"""Joining one frame of each camera: message_filters where installed, our equivalent where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

try:
    from message_filters import ApproximateTimeSynchronizer, SimpleFilter
except ImportError:
    from vla_simd_ros.nodes.approximate_time import ApproximateTimeSynchronizer, SimpleFilter

QUEUE_SIZE = 10


class FrameSynchronizer:
    """Calls back with one frame per camera, captured within ``slop_s`` seconds of each other."""

    def __init__(
        self, cameras: Sequence[str], slop_s: float, callback: Callable[[dict[str, Any]], None]
    ) -> None:
        self._cameras = list(cameras)
        self._slop_s = slop_s
        self._callback = callback
        self.reset()

    def add(self, camera: str, message: Any) -> None:
        """Take a frame; the callback may be called from here."""
        self._sources[camera].signalMessage(message)

    def reset(self) -> None:
        """Forget the frames that wait for others, after a jump of the clock."""
        self._sources: dict[str, Any] = {camera: SimpleFilter() for camera in self._cameras}
        self._synchronizer = ApproximateTimeSynchronizer(
            list(self._sources.values()), QUEUE_SIZE, self._slop_s
        )
        self._synchronizer.registerCallback(self._joined)

    def _joined(self, *messages: Any) -> None:
        self._callback(dict(zip(self._cameras, messages, strict=True)))
