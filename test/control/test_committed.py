"""Committed rows: what is promised is executed, and a chunk that repeats it joins without a step."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.control.blending import RealTime, Replace
from vla_simd_ros.control.chunk import Chunk
from vla_simd_ros.control.committed import CommittedError, CommittedPrefix, ExecutedRows
from vla_simd_ros.control.timeline import ChunkTimeline, Mode, StepKind

MS = 1_000_000
PERIOD = 100 * MS
START = 1_000_000 * MS


def timeline(mode: Mode = Mode.TIME_ALIGNED, steps: int | None = None) -> ChunkTimeline:
    made = RealTime(steps) if steps else Replace()
    line = ChunkTimeline(mode, PERIOD, made, 0, 100_000 * MS)
    line.start_epoch(1)
    return line


def chunk(sequence: int, stamp_ns: int, rows: int = 20, step_ns: int = PERIOD) -> Chunk:
    values = 100.0 * sequence + np.arange(2 * rows, dtype=np.float64).reshape(rows, 2)
    return Chunk(stamp_ns, sequence, 1, step_ns, values)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(list(Mode)),
    st.integers(0, 500),
    st.sampled_from([PERIOD, PERIOD // 2, 3 * PERIOD]),
    st.lists(st.integers(1, 3), min_size=1, max_size=6),
    st.integers(1, 1500),
)
def test_what_is_committed_is_executed(
    mode: Mode, age_ms: int, step_ns: int, before: list[int], ahead_ms: int
) -> None:
    line = timeline(mode)
    line.add(chunk(1, START - age_ms * MS, rows=60, step_ns=step_ns), START)
    now, done = START, []
    for count in before:
        done.append((now, line.advance(now).target))
        now += count * PERIOD
    last = done[-1][0]
    prefix = line.committed(last + ahead_ms * MS)
    assert prefix is not None
    assert (prefix.epoch, prefix.sequence, prefix.start_ns) == (1, 1, START)
    # Executed: the row in force at every control step, missed ones too.
    assert prefix.executed == (last - START) // PERIOD + 1
    for time, target in done:
        assert target is not None
        assert prefix.rows[(time - START) // PERIOD].tolist() == target.tolist()
    upcoming = list(range(last + PERIOD, last + ahead_ms * MS, PERIOD))
    assert prefix.end_ns <= last + ahead_ms * MS + PERIOD
    for i, time in enumerate(upcoming[: len(prefix.rows) - prefix.executed]):
        step = line.advance(time)
        assert step.target is not None
        assert prefix.rows[prefix.executed + i].tolist() == step.target.tolist()
        if i == 0 and step.kind is StepKind.ROW and step_ns == PERIOD:
            assert step.row == prefix.first_row
    if len(prefix.rows) - prefix.executed < len(upcoming):
        assert line.advance(upcoming[len(prefix.rows) - prefix.executed]).kind is StepKind.STARVED


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 300),
    st.integers(0, 500),
    st.integers(1, 5),
    st.sampled_from([PERIOD, 2 * PERIOD, 70 * MS]),
)
def test_a_chunk_that_repeats_the_committed_rows_changes_none_of_them(
    age_ms: int, query_age_ms: int, arrives_after: int, step_ns: int
) -> None:
    def run(line: ChunkTimeline, steps: range) -> list[list[float]]:
        targets = [line.advance(START + i * PERIOD).target for i in steps]
        return [target.tolist() for target in targets if target is not None]

    plain, spliced = timeline(), timeline(steps=4)
    for line in (plain, spliced):
        line.add(chunk(1, START - age_ms * MS, rows=30), START)
        run(line, range(6))
    now, stamp = START + 5 * PERIOD, START + 5 * PERIOD - query_age_ms * MS
    prefix = spliced.committed(now + 600 * MS)
    assert prefix is not None
    frozen = prefix.for_query(1, stamp, step_ns, most=100)
    assert len(frozen) > 0
    # Where the query's rows are no shorter than control steps, each committed step appears in them.
    values = np.concatenate([frozen, np.full((30, 2), -1.0)])
    spliced.add(Chunk(stamp, 2, 1, step_ns, values, frozen=len(frozen)), now + arrives_after * PERIOD - 1)
    expected = run(plain, range(6, 11))
    got = run(spliced, range(6, 11))
    if step_ns == PERIOD:
        assert got == expected
    else:
        # Coarser or finer rows: at each control step, a row committed for about that time.
        assert all(row in prefix.rows.tolist() for row in got)


def test_a_chunk_that_continues_nothing_is_led_over_to() -> None:
    line = timeline(steps=4)
    line.add(chunk(1, START), START)
    line.advance(START)
    line.add(chunk(2, START), START + 50 * MS)
    step = line.advance(START + PERIOD)
    assert step.target is not None
    assert step.target[0] == pytest.approx(102 + 100 / 4)


def test_a_chunk_that_arrives_after_its_prefix_is_led_over_to() -> None:
    line = timeline(steps=4)
    line.add(chunk(1, START), START)
    for i in range(4):
        line.advance(START + i * PERIOD)
    late = chunk(2, START)
    line.add(Chunk(START, 2, 1, PERIOD, late.rows, frozen=3), START + 350 * MS)
    step = line.advance(START + 4 * PERIOD)
    assert step.target is not None
    assert step.target[0] == pytest.approx(108 + 100 / 4)


def test_nothing_is_committed_where_nothing_is_executed() -> None:
    line = timeline()
    assert line.committed(START) is None
    line.add(chunk(1, START, rows=2), START)
    assert line.committed(START) is None
    line.advance(START)
    assert line.committed(START + 10 * PERIOD) is not None
    line.advance(START + 2 * PERIOD)
    assert line.committed(START + 10 * PERIOD) is None, "starved"
    line.add(chunk(2, START + PERIOD), START + 2 * PERIOD)
    line.advance(START + 3 * PERIOD)
    prefix = line.committed(START + 4 * PERIOD + 1)
    assert prefix is not None
    assert (prefix.executed, prefix.sequence, prefix.start_ns) == (1, 2, START + 3 * PERIOD)
    line.start_epoch(2)
    assert line.committed(START + 10 * PERIOD) is None


PREFIX = CommittedPrefix(1, 4, 7, START, PERIOD, 3, np.arange(10, dtype=np.float64).reshape(5, 2))


@pytest.mark.parametrize(
    ("epoch", "stamp_ns", "step_ns", "expected"),
    [
        (1, START, PERIOD, [0, 2, 4, 6, 8]),
        (1, START + 1, PERIOD, [2, 4, 6, 8]),
        (1, START - PERIOD + 1, PERIOD, [0, 2, 4, 6, 8]),
        (1, START - PERIOD, PERIOD, []),
        (1, START, 2 * PERIOD, [0, 4, 8]),
        (1, START, PERIOD // 2, [0, 2, 2, 4, 4, 6, 6, 8, 8]),
        (1, START + 5 * PERIOD, PERIOD, []),
        (2, START, PERIOD, []),
    ],
)
def test_a_querys_first_rows_are_those_of_its_control_steps(
    epoch: int, stamp_ns: int, step_ns: int, expected: list[int]
) -> None:
    assert PREFIX.for_query(epoch, stamp_ns, step_ns, most=100)[:, 0].tolist() == expected


def test_no_more_rows_are_given_than_asked_for() -> None:
    assert PREFIX.for_query(1, START, 1, most=3)[:, 0].tolist() == [0, 2, 2]
    assert PREFIX.for_query(1, START, PERIOD, most=0).shape == (0, PREFIX.rows.shape[1])


def test_it_travels_as_plain_fields() -> None:
    back = CommittedPrefix.from_fields(json.loads(json.dumps(PREFIX.to_fields())))
    assert back.to_fields() == PREFIX.to_fields()
    assert back.rows.tolist() == PREFIX.rows.tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epoch": -1}, "epoch: -1, expected a natural number"),
        ({"sequence": None}, "sequence: None"),
        ({"width": 0}, "10 values, expected a multiple of the width, 0"),
        ({"width": 3}, "10 values, expected a multiple of the width, 3"),
        ({"rows": [float("nan"), 1.0]}, "finite"),
        ({"executed": 6}, "executed: 6 of 5 rows"),
        ({"period_ns": 0}, "period_ns: 0"),
        ({"period_ns": 2**64 - 1}, "period_ns: 18446744073709551615, expected 1 to"),
    ],
)
def test_other_fields_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(CommittedError, match=words):
        CommittedPrefix.from_fields({**PREFIX.to_fields(), **change})


def test_executed_rows_are_bounded_and_fill_what_was_missed() -> None:
    rows = ExecutedRows(PERIOD, capacity=4)
    values = [np.array([float(i)]) for i in range(3)]
    rows.add(START, values[0])
    rows.add(START + 2 * PERIOD, values[1])
    assert [row[0] for row in rows] == [0, 0, 1]
    assert rows.start_ns == START
    rows.add(START + 10**6 * PERIOD, values[2])
    assert [row[0] for row in rows] == [1, 1, 1, 2]
    rows.clear()
    assert not len(rows)


def test_the_chunk_in_execution_goes_on_after_the_committed_rows() -> None:
    """Row i of the new chunk is the row of the chunk in execution that is nearest to its time."""
    chunk = np.arange(8.0)[:, None] * 10
    # Two rows executed, then row 3 of the chunk at 1200.
    prefix = CommittedPrefix(1, 4, 3, 1000, 100, 2, np.zeros((4, 1)))
    for stamp_ns, first, rows in (
        (1100, 1, [30, 40, 50, 60, 70]),
        (1100, 4, [60, 70]),
        (1130, 1, [30, 40, 50, 60, 70]),
        (1160, 1, [40, 50, 60, 70]),
        (1900, 0, []),
    ):
        assert prefix.remaining(chunk, stamp_ns, 100, first, 8)[:, 0].tolist() == rows
