"""Messages to plain data and back."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from vla_simd_ros.msg import ActionChunk, ExecutorState
from vla_simd_ros.msg import CommittedPrefix as CommittedMessage

from vla_simd_ros.control.committed import CommittedError, CommittedPrefix
from vla_simd_ros.control.query_pacer import SupplyReport
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.nodes.messages import (
    committed_message,
    committed_prefix,
    duration,
    nanoseconds,
    raw_chunk,
    stamp,
    supply_report,
)

PREFIX = CommittedPrefix(
    epoch=2**63, sequence=7, first_row=3, start_ns=1_234_567_890_123, period_ns=33_333_333, executed=1,
    rows=np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]),
)  # fmt: skip


def test_times() -> None:
    assert nanoseconds(stamp(5_000_000_007)) == 5_000_000_007
    assert nanoseconds(stamp(-1)) == 0
    assert nanoseconds(duration(2_500_000_000)) == 2_500_000_000
    assert nanoseconds(duration(-5)) == 0


def test_a_chunk_says_how_many_rows_were_given() -> None:
    assert raw_chunk(ActionChunk(frozen=4)).frozen == 4


def test_committed_rows_travel_exactly() -> None:
    message = committed_message(PREFIX, ["pan", "lift"])
    assert list(message.joint_names) == ["pan", "lift"]
    back = committed_prefix(message, ["pan", "lift"])
    assert back.to_fields() == PREFIX.to_fields()


def test_committed_columns_come_in_the_order_asked_for() -> None:
    back = committed_prefix(committed_message(PREFIX, ["pan", "lift"]), ["lift", "pan"])
    assert back.rows.tolist() == PREFIX.rows[:, ::-1].tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joint_names": ["pan", "claw"]}, "joint_names: .*claw.*, expected .*lift"),
        ({"joint_names": []}, "joint_names"),
        ({"rows": [1.0]}, "1 values, expected a multiple of the width, 2"),
        ({"rows": [float("nan"), 1.0]}, "finite"),
        ({"period_ns": 2**64 - 1}, "period_ns"),
        ({"executed": 9}, "executed: 9 of 3 rows"),
    ],
)
def test_a_message_that_holds_no_committed_rows_is_refused(changes: dict[str, object], words: str) -> None:
    message = committed_message(PREFIX, ["pan", "lift"])
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(CommittedError, match=words):
        committed_prefix(message, ["pan", "lift"])


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(CommittedError):
        committed_prefix(CommittedMessage(), ["pan"])


def test_the_executors_supply() -> None:
    message = ExecutorState(
        mode="lagged", control_period=0.02, buffered_steps=5, arrived_sequence=9, arrived_delay_ms=12.5
    )
    message.header.stamp = stamp(77)
    assert supply_report(message) == SupplyReport(77, Mode.LAGGED, 20_000_000, 5, 9, 12_500_000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"control_period": 0.0}, "control_period is 0.0 s"),
        ({"control_period": float("nan")}, "control_period is nan"),
        ({"arrived_delay_ms": float("nan")}, "arrived_delay_ms is nan"),
        ({"arrived_delay_ms": float("inf")}, "arrived_delay_ms is inf"),
        ({"mode": "fast"}, "fast"),
    ],
)
def test_a_state_that_cannot_be_is_refused(changes: dict[str, object], words: str) -> None:
    fields = {"mode": "lagged", "control_period": 0.02, **changes}
    with pytest.raises(ValueError, match=words):
        supply_report(ExecutorState(**fields))
