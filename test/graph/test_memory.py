"""The arena plan: nothing that is in use at the same time shares a byte."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.graph.memory import ALIGNMENT, ArenaPlan, Buffer, plan_arena


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    made = []
    for index in range(draw(st.integers(0, 25))):
        first = draw(st.integers(-1, 12))
        made.append(
            Buffer(
                name=f"buffer{index}",
                nbytes=draw(st.integers(1, 700)),
                first=first,
                last=draw(st.integers(first, 14)),
                program=draw(st.integers(0, 2)),
                persistent=draw(st.booleans()) and draw(st.booleans()),
                branch=draw(st.sampled_from([None, (0, 0), (0, 1), (1, 0)])),
            )
        )
    return made


def _share_a_byte(plan: ArenaPlan, planned: list[Buffer], one: int, other: int) -> bool:
    begin, end = plan.offsets[one], plan.offsets[one] + planned[one].nbytes
    return begin < plan.offsets[other] + planned[other].nbytes and plan.offsets[other] < end


@given(buffers())
def test_buffers_in_use_together_are_apart(planned: list[Buffer]) -> None:
    plan = plan_arena(planned)
    for one, other in combinations(range(len(planned)), 2):
        a, b = planned[one], planned[other]
        together = a.program == b.program and not (a.last < b.first or b.last < a.first)
        if together or a.persistent or b.persistent:
            assert not _share_a_byte(plan, planned, one, other)


@given(buffers())
def test_offsets_are_aligned_and_inside(planned: list[Buffer]) -> None:
    plan = plan_arena(planned)
    assert len(plan.offsets) == len(planned)
    for offset, buffer in zip(plan.offsets, planned, strict=True):
        assert offset % ALIGNMENT == 0
        assert offset >= 0 and offset + buffer.nbytes <= plan.nbytes
        assert (offset < plan.persistent_bytes) == buffer.persistent


@given(buffers())
def test_plans_are_no_larger_than_without_reuse(planned: list[Buffer]) -> None:
    apart = sum(-(-buffer.nbytes // ALIGNMENT) * ALIGNMENT for buffer in planned)
    assert plan_arena(planned).nbytes <= apart
    assert plan_arena(planned) == plan_arena(planned)


def test_memory_is_used_again() -> None:
    chain = [Buffer(f"b{i}", 1000, i, i + 1, program=0) for i in range(20)]
    assert plan_arena(chain).nbytes == 2 * 1024


def test_programs_share_memory() -> None:
    plan = plan_arena([Buffer("a", 640, 0, 5, program=0), Buffer("b", 64, 0, 5, program=1)])
    assert plan.offsets == (0, 0)
    assert plan.nbytes == 640


def test_persistent_memory_is_never_used_again() -> None:
    kept = Buffer("kept", 100, 0, 0, program=0, persistent=True)
    plan = plan_arena([Buffer("a", 64, 5, 6, program=0), kept, Buffer("b", 64, 7, 9, program=1)])
    assert plan.offsets == (128, 0, 128)
    assert plan.persistent_bytes == 128


def test_no_buffers_need_no_memory() -> None:
    assert plan_arena([]) == ArenaPlan((), 0, 0)


@pytest.mark.parametrize(("nbytes", "first", "last"), [(0, 0, 1), (-4, 0, 1), (4, 3, 2)])
def test_impossible_buffers_are_refused(nbytes: int, first: int, last: int) -> None:
    with pytest.raises(ValueError, match=f"buffer 'x': got {nbytes} bytes in use from {first} to {last}"):
        Buffer("x", nbytes, first, last, program=0)


def test_buffers_of_branches_that_run_at_the_same_time_meet() -> None:
    def buffer(first: int, branch: tuple[int, int] | None, program: int = 0) -> Buffer:
        return Buffer("b", 8, first, first, program, branch=branch)

    assert buffer(1, (0, 0)).meets(buffer(5, (0, 1)))
    assert not buffer(1, (0, 0)).meets(buffer(5, (0, 0)))
    assert not buffer(1, (0, 0)).meets(buffer(5, (1, 1)))
    assert not buffer(1, (0, 0)).meets(buffer(5, None))
    assert not buffer(1, (0, 0)).meets(buffer(5, (0, 1), program=1))
