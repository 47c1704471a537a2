"""Conversions between messages and the plain data that the rest of the package works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from builtin_interfaces.msg import Duration, Time

from vla_simd_ros.control.chunk import LONGEST_STEP_S, NANOSECONDS, RawChunk
from vla_simd_ros.control.committed import CommittedError, CommittedPrefix
from vla_simd_ros.control.names import shown
from vla_simd_ros.control.query_pacer import SupplyReport
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.msg import CommittedPrefix as CommittedMessage
from vla_simd_ros.msg import QueryTiming
from vla_simd_ros.nodes.query_decoding import HowDecoded

_LONGEST_DELAY_MS = 1e9


def nanoseconds(stamp: Time) -> int:
    """A message stamp as integer nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def stamp(time_ns: int) -> Time:
    """Nanoseconds as a message stamp; times before 0 become 0."""
    seconds, rest = divmod(max(0, time_ns), 1_000_000_000)
    return Time(sec=seconds, nanosec=rest)


def duration(time_ns: int) -> Duration:
    """Nanoseconds as a message duration; less than 0 becomes 0."""
    seconds, rest = divmod(max(0, time_ns), 1_000_000_000)
    return Duration(sec=seconds, nanosec=rest)


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
        frozen=message.frozen,
    )


def supply_report(message: Any) -> SupplyReport:
    """What an ExecutorState says about the supply. Raises ValueError for one that cannot be."""
    period_s, delay_ms = message.control_period, message.arrived_delay_ms
    if not 0.0 < period_s <= LONGEST_STEP_S:
        raise ValueError(f"control_period is {period_s} s, expected a positive number of seconds")
    if not abs(delay_ms) <= _LONGEST_DELAY_MS:
        raise ValueError(f"arrived_delay_ms is {delay_ms}, expected a number of milliseconds")
    return SupplyReport(
        time_ns=nanoseconds(message.header.stamp),
        mode=Mode(message.mode),
        period_ns=round(period_s * NANOSECONDS),
        buffered_steps=message.buffered_steps,
        sequence=message.arrived_sequence,
        delay_ns=round(delay_ms * 1e6),
    )


def decoding_fields(how: HowDecoded | None) -> dict[str, Any]:
    """Fields of a QueryTiming about a query's action tokens; none where there were none."""
    if how is None:
        return {}
    options, decoded = how.options, how.decoded
    return {
        "passes": len(decoded.passes),
        "tokens": len(decoded.tokens),
        "fixed_per_pass": decoded.fixed_per_pass,
        "min_tokens_per_second": decoded.min_tokens_per_second,
        "mean_tokens_per_second": decoded.mean_tokens_per_second,
        "exit": getattr(QueryTiming, decoded.exit.name),
        "exact": decoded.exact,
        "decoder": options.decoder,
        "block": len(decoded.passes[0].state),
        "sigma": options.sigma,
        "initialization": options.initialization,
        "decoder_seed": options.decoder_seed,
        "fixed_tokens": [one.fixed for one in decoded.passes],
    }


def committed_message(prefix: CommittedPrefix, joints: Sequence[str]) -> CommittedMessage:
    """Committed rows, their columns in the order of ``joints``, as a message."""
    fields = prefix.to_fields()
    del fields["width"]
    message = CommittedMessage(joint_names=list(joints))
    message.header.stamp = stamp(fields.pop("start_ns"))
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def committed_prefix(message: Any, columns: Sequence[str]) -> CommittedPrefix:
    """The committed rows of a message, their columns in the order of ``columns``.

    Raises:
        CommittedError: the message holds other columns, or no committed rows.
    """
    names = list(message.joint_names)
    if sorted(names) != sorted(columns):
        raise CommittedError(f"joint_names: {shown(names)}, expected {list(columns)} in any order")
    fields = {name: getattr(message, name) for name in ("epoch", "sequence", "first_row", "period_ns")}
    start_ns = nanoseconds(message.header.stamp)
    prefix = CommittedPrefix.from_fields(
        {
            **fields,
            "start_ns": start_ns,
            "executed": message.executed,
            "width": len(names),
            "rows": message.rows,
        }
    )
    return replace(prefix, rows=np.ascontiguousarray(prefix.rows[:, [names.index(name) for name in columns]]))
