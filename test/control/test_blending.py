"""Joining the rows of chunks."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.control.blending import Linear, Replace, blending

OLD, NEW = np.array([0.0, 4.0]), np.array([1.0, 0.0])


def test_replace_takes_the_newest() -> None:
    assert Replace().combine([OLD, NEW], 0) is NEW


def test_linear_goes_from_the_old_chunk_to_the_new_one() -> None:
    linear = Linear(4)
    assert [linear.combine([OLD, NEW], i)[0] for i in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert linear.combine([OLD, NEW], 1).tolist() == [0.5, 2.0]


def test_linear_over_one_step_replaces() -> None:
    assert Linear(1).combine([OLD, NEW], 0) is NEW


def test_linear_with_nothing_before_takes_the_new_row() -> None:
    assert Linear(4).combine([NEW], 0) is NEW


def test_modes_are_found_by_name() -> None:
    assert blending("replace", 1).keep == 1
    assert blending("linear", 5).keep == 2


@pytest.mark.parametrize(("name", "steps", "words"), [("mean", 3, "'mean'"), ("linear", 0, "over 0 steps")])
def test_a_bad_mode_is_named(name: str, steps: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        blending(name, steps)
