from __future__ import annotations

import random

import pytest

from vla_simd_ros.control.observation_history import SampleHistory, padded, step_times

MS = 1_000_000


def history(stamps: list[int], **limits: int) -> SampleHistory[int]:
    made: SampleHistory[int] = SampleHistory(**{"keep_ns": 1000, "recent": 4, **limits})
    for stamp in stamps:
        made.add(stamp, stamp)
    return made


@pytest.mark.parametrize(
    ("time_ns", "tolerance_ns", "found"),
    [
        (200, 0, 200), (210, 20, 200), (249, 50, 200), (250, 50, 200), (251, 50, 300), (50, 50, 100),
        (49, 50, None), (360, 50, None), (350, 50, 300), (260, 30, None), (250, 49, None),
    ],
)  # fmt: skip
def test_the_sample_nearest_in_time(time_ns: int, tolerance_ns: int, found: int | None) -> None:
    assert history([100, 200, 300]).nearest(time_ns, tolerance_ns) == found


def test_nothing_is_near_in_an_empty_one() -> None:
    made = history([100])
    made.clear()
    assert made.nearest(100, 1000) is None
    assert len(made) == 0


def test_the_order_of_arrival_changes_nothing() -> None:
    stamps = list(range(0, 900, 50))
    shuffled = random.Random(0).sample(stamps, len(stamps))
    for arrived in (stamps, stamps[::-1], shuffled, stamps + stamps):
        made = history(arrived)
        assert [made.nearest(t, 20) for t in range(0, 900, 25)] == [
            t if t % 50 == 0 else None for t in range(0, 900, 25)
        ]


def test_of_two_samples_of_one_time_the_first_is_kept() -> None:
    made: SampleHistory[str] = SampleHistory(1000, 4)
    made.add(100, "first")
    made.add(100, "second")
    assert made.nearest(100, 0) == "first"


def test_what_is_kept_is_bounded() -> None:
    made = history(list(range(0, 100_000, 10)), keep_ns=95, recent=3)
    # The third newest is 99970; the one 95 before it is not kept any more.
    assert len(made) == 3 + 9
    assert (made.nearest(99_880, 0), made.nearest(99_870, 0)) == (99_880, None)
    assert len(history(list(range(1000)), keep_ns=10**9, recent=1, most=16)) == 16


def test_a_sample_from_long_ago_is_not_kept() -> None:
    made = history([10_000, 10_010, 10_020, 10_030])
    made.add(5, 5)
    assert made.nearest(5, 0) is None
    assert made.nearest(10_000, 0) == 10_000


def test_times_of_steps() -> None:
    assert step_times(1000, 3, 100) == [800, 900, 1000]
    assert step_times(1000, 1, 100) == [1000]


@pytest.mark.parametrize(
    ("before", "whole", "valid"),
    [
        ([], ["d"], [True]),
        (["a", "b", "c"], ["a", "b", "c", "d"], [True] * 4),
        ([None, None, None], ["d"] * 4, [False, False, False, True]),
        ([None, "b", None], ["b", "b", "d", "d"], [False, True, False, True]),
        (["a", None, "c"], ["a", "c", "c", "d"], [True, False, True, True]),
    ],
)
def test_a_missing_step_is_the_next_there_is(
    before: list[str | None], whole: list[str], valid: list[bool]
) -> None:
    assert padded(before, "d") == (whole, valid)
