"""Checks on the content of a chunk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vla_simd_ros.control.chunk import ChunkRejected, RawChunk, RejectReason, check_content

JOINTS = ("pan", "lift", "grip")


def raw(**changes: object) -> RawChunk:
    base = RawChunk(
        stamp_ns=1_000,
        sequence=7,
        epoch=3,
        action_names=JOINTS,
        step_period=0.1,
        horizon=4,
        window=3,
        actions=np.arange(12, dtype=np.float32),
        query_ms=12.5,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_good_chunk_keeps_its_window_in_joint_order() -> None:
    chunk = check_content(raw(), JOINTS)
    assert chunk.rows.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert (chunk.window, chunk.step_ns, chunk.duration_ns) == (3, 100_000_000, 300_000_000)
    assert (chunk.stamp_ns, chunk.sequence, chunk.epoch, chunk.query_ms) == (1_000, 7, 3, 12.5)


def test_columns_in_another_order_are_brought_into_joint_order_by_name() -> None:
    chunk = check_content(raw(action_names=("grip", "pan", "lift")), JOINTS)
    assert chunk.rows[0].tolist() == [1, 2, 0]


def actions_with(index: int, value: float) -> np.ndarray:
    actions = np.zeros(12, dtype=np.float32)
    actions[index] = value
    return actions


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"actions": actions_with(4, np.nan)}, RejectReason.NOT_FINITE, "row 1 of joint 'lift' is nan"),
        ({"actions": actions_with(0, np.inf)}, RejectReason.NOT_FINITE, "row 0 of joint 'pan' is inf"),
        ({"actions": actions_with(5, -3e38)}, RejectReason.IMPLAUSIBLE, "row 1 of joint 'grip' is -3"),
        ({"action_names": ["x"] * 300_000}, RejectReason.DUPLICATE_JOINT, r"\['x'\] more than once"),
        ({"action_names": [str(i) for i in range(300_000)]}, RejectReason.UNKNOWN_JOINT, "and 299988 more"),
        ({"actions": np.zeros(8)}, RejectReason.WRONG_WIDTH, "8 action values, expected .* 4 x 3 = 12"),
        ({"actions": np.zeros(11)}, RejectReason.WRONG_SHAPE, "11 action values"),
        ({"actions": np.zeros(0)}, RejectReason.WRONG_WIDTH, "0 action values"),
        ({"action_names": ("pan", "lift", "claw")}, RejectReason.UNKNOWN_JOINT, "claw"),
        ({"action_names": ("pan", "lift")}, RejectReason.MISSING_JOINT, "grip"),
        ({"action_names": ()}, RejectReason.MISSING_JOINT, "pan"),
        ({"action_names": ("pan", "lift", "lift")}, RejectReason.DUPLICATE_JOINT, "lift"),
        ({"step_period": 0.0}, RejectReason.BAD_STEP_PERIOD, "0.0 s"),
        ({"step_period": -0.1}, RejectReason.BAD_STEP_PERIOD, "-0.1 s"),
        ({"step_period": float("nan")}, RejectReason.BAD_STEP_PERIOD, "nan s"),
        ({"step_period": float("inf")}, RejectReason.BAD_STEP_PERIOD, "inf s"),
        ({"step_period": 10.1}, RejectReason.BAD_STEP_PERIOD, "at most 10.0 s"),
        ({"step_period": 1e300}, RejectReason.BAD_STEP_PERIOD, "1e\\+300 s"),
        ({"window": 5}, RejectReason.BAD_WINDOW, "window is 5, expected 1 to the horizon, 4"),
        ({"window": 0}, RejectReason.BAD_WINDOW, "window is 0"),
        ({"horizon": 0, "window": 0, "actions": np.zeros(0)}, RejectReason.BAD_WINDOW, "horizon, 0"),
    ],
)
def test_a_bad_chunk_is_rejected_with_its_reason(
    changes: dict[str, object], reason: RejectReason, words: str
) -> None:
    with pytest.raises(ChunkRejected, match=words) as caught:
        check_content(raw(**changes), JOINTS)
    assert caught.value.reason is reason


def test_a_value_outside_the_window_may_be_anything() -> None:
    check_content(raw(actions=actions_with(11, np.nan)), JOINTS)
