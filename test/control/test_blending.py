"""Joining a chunk to the plan in execution."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from vla_simd_ros.control.blending import (
    BLENDINGS,
    Aggregate,
    Linear,
    RealTime,
    Replace,
    Splice,
    TemporalEnsemble,
    blending,
)
from vla_simd_ros.control.chunk import Rows

OLD = np.array([[0.0, 4.0], [1.0, 5.0], [2.0, 6.0], [2.0, 6.0]])
NEW = np.array([[8.0, 4.0], [7.0, 3.0], [6.0, 2.0], [5.0, 1.0]])


def splice(joined: int = 1, continued: bool = False) -> Splice:
    """The plan has run out at the last row."""
    covered = np.array([True, True, True, False])
    return Splice(OLD, NEW, covered, np.full(4, joined), np.arange(4), continued)


def test_replace_takes_the_newest() -> None:
    assert Replace().join(splice()) is NEW


def test_linear_goes_from_the_plan_to_the_new_chunk() -> None:
    rows = Linear(3).join(splice())
    assert rows[:, 0] == pytest.approx([8 / 3, (1 + 14) / 3, 6, 5])
    assert rows[2:].tolist() == NEW[2:].tolist()


def test_linear_stands_on_the_last_row_of_a_plan_that_has_run_out() -> None:
    assert Linear(8).join(splice())[3].tolist() == [3.5, 3.5]


def test_linear_over_one_step_replaces() -> None:
    assert Linear(1).join(splice()).tolist() == NEW.tolist()


def test_a_continuation_goes_on_and_another_chunk_is_led_over_to() -> None:
    assert RealTime(3).join(splice(continued=True)) is NEW
    assert RealTime(3).join(splice()).tolist() == Linear(3).join(splice()).tolist()


@pytest.mark.parametrize(
    ("name", "old_weight", "new_weight"),
    [
        ("latest_only", 0, 1),
        ("weighted_average", 0.3, 0.7),
        ("average", 0.5, 0.5),
        ("conservative", 0.7, 0.3),
    ],
)
def test_aggregations_weigh_as_lerobot_names_them(name: str, old_weight: float, new_weight: float) -> None:
    made = blending(name, 1)
    assert isinstance(made, Aggregate)
    rows = made.join(splice())
    assert rows[:3] == pytest.approx(old_weight * OLD[:3] + new_weight * NEW[:3])
    assert rows[3].tolist() == NEW[3].tolist(), "nothing to aggregate with"


@pytest.mark.parametrize("coefficient", [0.01, 0.0, -0.2, 2.0])
def test_an_ensemble_is_the_weighted_mean_of_all_its_chunks(coefficient: float) -> None:
    rng = np.random.default_rng(1)
    chunks = rng.normal(size=(30, 1, 2))
    ensemble = TemporalEnsemble(coefficient)

    def join(plan: tuple[Rows, int], chunk: Rows) -> tuple[Rows, int]:
        made = Splice(plan[0], chunk, np.array([True]), np.array([plan[1]]), np.array([0]))
        return ensemble.join(made), plan[1] + 1

    rows, _ = reduce(join, list(chunks[1:]), (chunks[0], 1))
    weights = np.exp(-coefficient * np.arange(30))
    assert rows[0] == pytest.approx(weights @ chunks[:, 0] / weights.sum(), rel=1e-10)


def test_an_ensemble_of_very_many_chunks_stays_finite() -> None:
    for coefficient in (10.0, -10.0):
        rows = TemporalEnsemble(coefficient).join(splice(joined=100_000))
        assert np.isfinite(rows).all()
        assert rows[0, 0] == pytest.approx(0.0 if coefficient > 0 else 8.0, abs=1e-3)
    assert TemporalEnsemble(0.01).join(splice(joined=99))[3].tolist() == NEW[3].tolist()


def test_every_name_is_a_mode() -> None:
    for name in BLENDINGS:
        assert blending(name, 5).join(splice()).shape == NEW.shape


@pytest.mark.parametrize(
    ("name", "steps", "coefficient", "words"),
    [
        (
            "mean",
            3,
            0.0,
            "'mean', expected one of replace, linear, real_time, temporal_ensemble, latest_only",
        ),
        ("linear", 0, 0.0, "over 0 steps"),
        ("real_time", 0, 0.0, "over 0 steps"),
        ("temporal_ensemble", 3, math.nan, "coefficient nan"),
        ("temporal_ensemble", 3, 11.0, "coefficient 11"),
    ],
)
def test_a_bad_mode_is_named(name: str, steps: int, coefficient: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        blending(name, steps, coefficient)
