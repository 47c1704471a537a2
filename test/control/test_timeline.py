"""Rows by time: lagged and time-aligned execution, staleness, starvation, epochs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.control.blending import Blending, Linear, Replace, blending
from vla_simd_ros.control.chunk import Chunk, ChunkRejected, RejectReason
from vla_simd_ros.control.timeline import ChunkTimeline, Mode, Step, StepKind

MS = 1_000_000
PERIOD = 100 * MS
START = 1_000_000 * MS


def timeline(mode: Mode, blending: Blending | None = None, epoch: int | None = 1) -> ChunkTimeline:
    made = ChunkTimeline(mode, PERIOD, blending or Replace(), 20 * MS, 10_000 * MS)
    if epoch is not None:
        made.start_epoch(epoch)
    return made


def chunk(
    sequence: int, stamp_ns: int, rows: int = 5, epoch: int = 1, step_ns: int = PERIOD, base: float = 0.0
) -> Chunk:
    """Row i of chunk s is [100 s + i + base]: its value tells where it came from."""
    values = 100.0 * sequence + base + np.arange(rows, dtype=np.float64)[:, None]
    return Chunk(stamp_ns, sequence, epoch, step_ns, values)


def run(line: ChunkTimeline, first: int, count: int) -> list[Step]:
    return [line.advance(START + i * PERIOD) for i in range(first, first + count)]


def values(steps: list[Step]) -> list[float | None]:
    return [None if step.target is None else float(step.target[0]) for step in steps]


def test_lagged_starts_at_row_0_on_arrival() -> None:
    line = timeline(Mode.LAGGED)
    line.add(chunk(1, START - 250 * MS), START)
    steps = run(line, 0, 3)
    assert values(steps) == [100, 101, 102]
    assert [step.row for step in steps] == [0, 1, 2]
    assert line.stale_rows == 0


def test_lagged_switches_to_a_new_chunk_at_its_row_0() -> None:
    line = timeline(Mode.LAGGED)
    line.add(chunk(1, START - 250 * MS), START)
    assert values(run(line, 0, 2)) == [100, 101]
    line.add(chunk(2, START), START + 150 * MS)
    steps = run(line, 2, 2)
    assert values(steps) == [200, 201]
    assert steps[0].splice == 99.0
    assert steps[1].splice is None


def test_time_aligned_starts_at_the_row_whose_time_has_come_and_drops_the_earlier_ones() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(1, START - 250 * MS), START)
    steps = run(line, 0, 3)
    assert values(steps) == [102, 103, 104]
    assert line.stale_rows == 2
    assert steps[0].stamp_ns == START - 250 * MS


def test_time_aligned_chunks_of_one_plan_pass_seamlessly() -> None:
    """Two chunks that predict the same motion give that motion, whenever they arrive."""
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(1, START - 200 * MS, rows=10), START)
    first = values(run(line, 0, 3))
    line.add(chunk(2, START + 100 * MS, rows=10, base=-97.0), START + 250 * MS)
    steps = run(line, 3, 3)
    assert first + values(steps) == [102, 103, 104, 105, 106, 107]
    assert steps[0].splice == 1.0


def test_a_row_lasts_until_the_next_ones_time() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(1, START, rows=2, step_ns=3 * PERIOD), START)
    steps = run(line, 0, 7)
    assert [step.kind for step in steps] == [
        StepKind.ROW, StepKind.KEEP, StepKind.KEEP, StepKind.ROW, StepKind.KEEP, StepKind.KEEP,
        StepKind.STARVED,
    ]  # fmt: skip
    assert values(steps)[:6] == [100, 100, 100, 101, 101, 101]
    assert line.executed_steps == 2


def test_rows_faster_than_control_steps_are_skipped_and_counted() -> None:
    line = timeline(Mode.LAGGED)
    line.add(chunk(1, START, rows=6, step_ns=PERIOD // 2), START)
    assert values(run(line, 0, 3)) == [100, 102, 104]
    assert line.stale_rows == 2


def test_a_missed_control_step_drops_its_row() -> None:
    line = timeline(Mode.LAGGED)
    line.add(chunk(1, START), START)
    run(line, 0, 1)
    assert values(run(line, 3, 1)) == [103]
    assert line.stale_rows == 2


def test_starvation_is_counted_from_the_first_missing_row() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    assert [step.kind for step in run(line, 0, 2)] == [StepKind.WAITING] * 2
    line.add(chunk(1, START + 100 * MS, rows=3), START + 150 * MS)
    steps = run(line, 2, 4)
    assert [step.kind for step in steps] == [StepKind.ROW, StepKind.ROW, StepKind.STARVED, StepKind.STARVED]
    assert (line.starved_steps, line.executed_steps, line.stale_rows) == (2, 2, 1)


def test_a_chunk_after_starvation_goes_on() -> None:
    line = timeline(Mode.LAGGED)
    line.add(chunk(1, START, rows=1), START)
    run(line, 0, 3)
    line.add(chunk(2, START + 200 * MS), START + 250 * MS)
    steps = run(line, 3, 1)
    assert values(steps) == [200]
    assert steps[0].splice == 100.0


def test_a_capture_time_within_the_tolerance_of_the_future_waits_for_its_time() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(1, START + 10 * MS), START)
    assert [step.kind for step in run(line, 0, 2)] == [StepKind.WAITING, StepKind.ROW]


def test_a_new_epoch_drops_rows_and_waits() -> None:
    line = timeline(Mode.LAGGED)
    line.add(chunk(1, START), START)
    run(line, 0, 2)
    line.start_epoch(2)
    assert [step.kind for step in run(line, 2, 2)] == [StepKind.WAITING] * 2
    assert line.starved_steps == 0
    line.add(chunk(1, START, epoch=2), START + 300 * MS)
    assert values(run(line, 4, 1)) == [100]


def test_a_chunk_of_an_older_epoch_in_flight_is_dropped_wherever_it_is() -> None:
    line = timeline(Mode.LAGGED, epoch=5)
    line.add(chunk(1, START, epoch=5), START)
    line.start_epoch(6)
    with pytest.raises(ChunkRejected) as caught:
        line.add(chunk(2, START + MS, epoch=5), START + 2 * MS)
    assert caught.value.reason is RejectReason.OLDER_EPOCH
    assert [step.kind for step in run(line, 0, 2)] == [StepKind.WAITING] * 2


def test_after_rows_are_cleared_only_a_new_chunk_restarts() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(4, START), START)
    run(line, 0, 1)
    line.clear_rows()
    assert line.buffered_steps() == 0
    assert run(line, 1, 1)[0].kind is StepKind.WAITING
    with pytest.raises(ChunkRejected) as caught:
        line.add(chunk(4, START), START + 100 * MS)
    assert caught.value.reason is RejectReason.DUPLICATE_SEQUENCE
    line.add(chunk(5, START + 100 * MS), START + 150 * MS)
    assert values(run(line, 2, 1)) == [501]


REJECTED = [
    (chunk(5, START), RejectReason.DUPLICATE_SEQUENCE, "expected a sequence number above 5"),
    (chunk(4, START), RejectReason.SEQUENCE_BACKWARDS, "expected a sequence number above 5"),
    (chunk(6, START, epoch=0), RejectReason.OLDER_EPOCH, "epoch 0 is older than the present one, 1"),
    (chunk(6, START, epoch=2), RejectReason.UNKNOWN_EPOCH, "epoch 2 has not been announced"),
    (chunk(6, 0), RejectReason.STAMP_ZERO, "stamp is zero"),
    (chunk(6, START + 121 * MS), RejectReason.STAMP_FUTURE, "21.0 ms in the future"),
    (chunk(6, START - 51 * MS), RejectReason.STAMP_BACKWARDS, "1.0 ms before"),
]


@pytest.mark.parametrize(("bad", "reason", "words"), REJECTED, ids=[r[1].value for r in REJECTED])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_chunk_that_does_not_fit_is_rejected_and_changes_nothing(
    mode: Mode, bad: Chunk, reason: RejectReason, words: str
) -> None:
    line = timeline(mode)
    line.add(chunk(5, START - 50 * MS, rows=9), START)
    expected = values(run(line, 0, 1))
    with pytest.raises(ChunkRejected, match=words) as caught:
        line.add(bad, START + 100 * MS)
    assert caught.value.reason is reason
    after = values(run(line, 1, 3))
    assert after == [expected[0] + i for i in (1, 2, 3)]  # type: ignore[operator]


def test_a_chunk_without_an_announced_epoch_is_rejected() -> None:
    with pytest.raises(ChunkRejected, match="has not been announced") as caught:
        timeline(Mode.LAGGED, epoch=None).add(chunk(1, START), START)
    assert caught.value.reason is RejectReason.UNKNOWN_EPOCH


def test_an_observation_that_is_too_old_is_rejected() -> None:
    with pytest.raises(ChunkRejected, match=r"10.001 s ago, expected at most 10.000 s") as caught:
        timeline(Mode.LAGGED).add(chunk(1, START - 10_001 * MS), START)
    assert caught.value.reason is RejectReason.TOO_OLD


def test_a_chunk_whose_rows_are_all_stale_is_rejected_in_time_aligned_execution() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    with pytest.raises(ChunkRejected, match="all 5 rows are stale") as caught:
        line.add(chunk(1, START - 500 * MS), START)
    assert caught.value.reason is RejectReason.EXPIRED
    assert line.stale_rows == 5


def test_time_never_goes_backwards() -> None:
    line = timeline(Mode.LAGGED)
    run(line, 3, 1)
    for earlier in (3, 2):
        with pytest.raises(ValueError, match="expected one after"):
            line.advance(START + earlier * PERIOD)


def test_a_clock_jump_resets_times_and_keeps_the_epoch() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(9, START), START)
    run(line, 0, 2)
    line.clock_jumped()
    assert line.advance(50 * MS).kind is StepKind.WAITING
    line.add(chunk(1, 60 * MS), 70 * MS)
    assert values([line.advance(160 * MS)]) == [101]


def test_linear_blending_moves_from_the_old_chunk_to_the_new_one() -> None:
    line = timeline(Mode.TIME_ALIGNED, Linear(4))
    line.add(chunk(1, START, rows=20), START)
    run(line, 0, 2)
    line.add(chunk(2, START, rows=20), START + 150 * MS)
    steps = run(line, 2, 5)
    assert values(steps) == [102 + 25, 103 + 50, 104 + 75, 205, 206]
    assert steps[0].splice == 26.0


def test_linear_blending_stands_on_the_last_row_of_a_chunk_that_ran_out() -> None:
    line = timeline(Mode.LAGGED, Linear(2))
    line.add(chunk(1, START, rows=2), START)
    run(line, 0, 4)
    line.add(chunk(2, START), START + 350 * MS)
    assert values(run(line, 4, 2)) == [(101 + 200) / 2, 201]


@pytest.mark.parametrize("mode", list(Mode))
def test_buffered_steps_count_what_can_still_be_executed(mode: Mode) -> None:
    line = timeline(mode)
    assert line.buffered_steps() == 0
    line.add(chunk(1, START, rows=4), START)
    run(line, 0, 1)
    left = [line.buffered_steps()]
    left += [line.buffered_steps() for i in range(1, 5) if run(line, i, 1)]
    assert left == [3, 2, 1, 0, 0]


arrivals = st.lists(
    st.tuples(
        st.integers(0, 60),  # control step of arrival
        st.integers(0, 700),  # delay in ms
        st.integers(1, 12),  # rows
        st.integers(1, 2),  # epoch
        st.sampled_from([PERIOD, PERIOD // 2, 3 * PERIOD]),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(Mode)), arrivals, st.integers(0, 60), st.sets(st.integers(0, 60)))
def test_any_history_executes_each_row_once_in_order_and_never_one_of_an_old_epoch(
    mode: Mode, history: list[tuple[int, int, int, int, int]], epoch_step: int, missed: set[int]
) -> None:
    line = timeline(mode)
    executed: list[tuple[int, int]] = []
    sequence = 0
    for i in range(61):
        now = START + i * PERIOD
        if i == epoch_step:
            line.start_epoch(2)
            executed.append((-1, -1))
        for _, delay_ms, rows, epoch, step_ns in (a for a in history if a[0] == i):
            sequence += 1
            try:
                line.add(chunk(sequence, now - delay_ms * MS, rows, epoch, step_ns), now)
            except ChunkRejected:
                continue
            assert epoch == line.epoch
        if i in missed:
            continue
        step = line.advance(now)
        if step.kind is StepKind.ROW:
            assert step.target is not None
            assert step.target[0] == 100.0 * step.sequence + step.row
            if mode is Mode.TIME_ALIGNED:
                assert step.stamp_ns <= now
            executed.append((step.sequence, step.row))
    marker = executed.index((-1, -1))
    for part in (executed[:marker], executed[marker + 1 :]):
        assert all(later > earlier for earlier, later in pairwise(part))
    assert len(executed) - 1 == line.executed_steps


def test_a_chunk_that_expires_before_its_control_step_leaves_the_plan_in_force() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(1, START, rows=9), START)
    run(line, 0, 1)
    line.add(chunk(2, START, rows=2), START + 150 * MS)
    assert values(run(line, 2, 2)) == [102, 103]
    assert line.stale_rows == 2 + 1


def test_chunks_that_arrive_between_two_control_steps_are_all_joined() -> None:
    line = timeline(Mode.TIME_ALIGNED, blending("average", 1))
    for sequence in (1, 2, 3):
        line.add(chunk(sequence, START, rows=9), START)
    assert values(run(line, 0, 1)) == [225]


def test_rows_longer_than_control_steps_do_not_turn_time_back() -> None:
    line = timeline(Mode.TIME_ALIGNED)
    line.add(chunk(1, START, step_ns=3 * PERIOD), START)
    assert values(run(line, 0, 4)) == [100, 100, 100, 101]
    # Row 0 of this chunk is in force at step 4, but meant for step 2: row 101, for step 3, has been executed.
    line.add(chunk(2, START + 2 * PERIOD, step_ns=3 * PERIOD), START + 350 * MS)
    steps = run(line, 4, 2)
    assert values(steps) == [101, 201]
    assert (steps[0].kind, steps[0].sequence, steps[1].splice) == (StepKind.KEEP, 1, 100.0)
