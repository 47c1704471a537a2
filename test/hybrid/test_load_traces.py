"""Kinds of load are what they say, and recordings are read or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.hybrid.load_traces import LOAD_KINDS, MOST_LOAD, make_loads, read_loads
from vla_simd_ros.hybrid.stage_costs import CostError


@pytest.mark.parametrize("kind", LOAD_KINDS)
def test_every_kind_is_a_share_of_either_side_by_itself(kind: str) -> None:
    loads = make_loads(kind, "both", 3, 700)
    assert loads.shape == (700, 2)
    assert ((loads >= 0.0) & (loads <= MOST_LOAD)).all()
    assert kind == "none" or not np.array_equal(loads[:, 0], loads[:, 1])
    assert np.array_equal(loads, make_loads(kind, "both", 3, 700))
    assert kind == "none" or not np.array_equal(loads, make_loads(kind, "both", 4, 700))


def test_one_side_is_loaded_alone() -> None:
    assert not make_loads("walk", "prefix", 1, 50)[:, 1].any()
    assert not make_loads("walk", "suffix", 1, 50)[:, 0].any()


@pytest.mark.parametrize(("kind", "least", "most"), [("squares-20-60", 20, 60), ("squares-4-16", 4, 16)])
def test_squares_come_back_after_their_period(kind: str, least: int, most: int) -> None:
    load = make_loads(kind, "prefix", 5, 400)[:, 0]
    periods = [lag for lag in range(1, 100) if np.array_equal(load[lag:], load[:-lag])]
    assert least <= periods[0] <= most


@pytest.mark.parametrize(("kind", "alike"), [("noise-100", 100.0), ("noise-10", 10.0), ("noise", 0.0)])
def test_noise_is_alike_for_as_many_frames_as_its_name_says(kind: str, alike: float) -> None:
    load = make_loads(kind, "suffix", 2, 20_000)[:, 1]
    expected = np.exp(-1.0 / alike) if alike else 0.0
    assert np.corrcoef(load[1:], load[:-1])[0, 1] == pytest.approx(expected, abs=0.03)


def test_work_comes_and_goes_with_the_lengths_of_its_name() -> None:
    load = make_loads("work-10-of-30", "prefix", 8, 30_000)[:, 0]
    assert (load > 0.0).mean() == pytest.approx(1 / 3, abs=0.04)
    changes = np.count_nonzero(np.diff(load > 0.0))
    assert len(load) / changes == pytest.approx(15.0, rel=0.1)


def test_a_recording_is_read(tmp_path: Path) -> None:
    path = tmp_path / "drive.csv"
    path.write_text("0,0.25\n0.5, 1\n\n", encoding="utf-8")
    assert read_loads(path) == pytest.approx(np.array([[0.0, 0.25], [0.5, MOST_LOAD]]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no loads"),
        ("0.1,0.2\n0.3\n", ":2: '0.3', expected two numbers"),
        ("0.1,much\n", ":1: '0.1,much', expected two numbers"),
        ("0.1,1.5\n", ":1: '0.1,1.5', expected shares from 0 to 1"),
        ("nan,0\n", ":1: 'nan,0', expected shares"),
    ],
)
def test_a_recording_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "drive.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CostError, match=message):
        read_loads(path)
    with pytest.raises(CostError, match="cannot be read"):
        read_loads(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("kind", "side", "message"),
    [
        ("rain", "both", "the load 'rain' is unknown, expected one of none"),
        ("walk", "left", "side is 'left'"),
    ],
)
def test_loads_that_there_are_not_are_refused(kind: str, side: str, message: str) -> None:
    with pytest.raises(CostError, match=message):
        make_loads(kind, side, 0, 10)
