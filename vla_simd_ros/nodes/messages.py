"""Conversions between messages and the plain data that the rest of the package works with."""

from __future__ import annotations

from typing import Any

from builtin_interfaces.msg import Time

from vla_simd_ros.control.chunk import RawChunk


def nanoseconds(stamp: Time) -> int:
    """A message stamp as integer nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def stamp(time_ns: int) -> Time:
    """Nanoseconds as a message stamp; times before 0 become 0."""
    seconds, rest = divmod(max(0, time_ns), 1_000_000_000)
    return Time(sec=seconds, nanosec=rest)


def raw_chunk(message: Any) -> RawChunk:
    """The unchecked fields of an ActionChunk."""
    return RawChunk(
        stamp_ns=nanoseconds(message.header.stamp),
        sequence=message.sequence,
        epoch=message.epoch,
        action_names=list(message.action_names),
        step_period=message.step_period,
        horizon=message.horizon,
        window=message.window,
        actions=message.actions,
        query_ms=message.timing.total_ms,
    )
