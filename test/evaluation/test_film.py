"""Animations show the episode that was, and keep within their size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_world import RIGHT, LinePolicy, LineWorld

from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.film import beside, captioned, film, write_gif, write_small_gif
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.rollout import Result, run_episode
from vla_simd_ros.evaluation.world import Episode, EvaluationError, Limits, Picture

Image = pytest.importorskip(
    "PIL.Image", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'"
)


def result(steps: int = 60) -> Result:
    pilot = PolicyPilot(LinePolicy(), Execution())
    return run_episode(LineWorld(), pilot, Episode(0, 5, RIGHT, RIGHT), Limits(steps))


def column(picture: Picture) -> int:
    """Where the white column of the small world stands."""
    return int(picture[0, :, 0].argmax())


def test_the_film_shows_the_commands_again() -> None:
    found = result()
    pictures = list(film(LineWorld(), found, frames_per_s=10.0))
    # 20 control steps a second, every other one, and the end.
    assert len(pictures) == -(-found.steps // 2) + 1
    places = [column(picture) for picture in pictures]
    assert places == sorted(places)
    assert places[0] in (31, 32) and places[-1] == 62


def test_the_bar_tells_how_it_ended() -> None:
    good, bad = list(film(LineWorld(), result(), 10.0))[-1], list(film(LineWorld(), result(5), 10.0))[-1]
    assert good[-1, 0, 1] > good[-1, 0, 0]
    assert bad[-1, 0, 0] > bad[-1, 0, 1]


@pytest.mark.parametrize("text", ["go", "put the green cube on the right pad and then do it all over again"])
def test_captions_of_any_length_fit(text: str) -> None:
    picture = captioned(np.zeros((240, 320, 3), np.uint8), text, (0, 0, 0))
    assert picture.shape[1] == 320
    lit = picture[240:, :, 0] > 100
    assert lit.any()
    assert not lit[:, 0].any() and not lit[:, -1].any()


def test_films_side_by_side_wait_for_the_longest() -> None:
    one, two, three = (
        [np.full((4, 6, 3), 10 * film + number, np.uint8) for number in range(length)]
        for film, length in ((1, 1), (2, 3), (3, 2))
    )
    pictures = beside([one, two, three], columns=2)
    assert [picture.shape for picture in pictures] == [(8, 12, 3)] * 3
    assert [picture[0, 0, 0] for picture in pictures] == [10, 10, 10]
    assert [picture[0, 6, 0] for picture in pictures] == [20, 21, 22]
    assert [picture[4, 0, 0] for picture in pictures] == [30, 31, 31]
    assert not pictures[0][4:, 6:].any()


def test_a_gif_plays_all_pictures(tmp_path: Path) -> None:
    pictures = list(film(LineWorld(), result(), 10.0))
    size = write_gif(pictures, tmp_path / "a.gif", 10.0)
    assert size == (tmp_path / "a.gif").stat().st_size
    with Image.open(tmp_path / "a.gif") as read:
        assert read.n_frames == len(pictures)
        assert read.info["duration"] == 100 and read.info["loop"] == 0
        for number in (0, len(pictures) - 1):
            read.seek(number)
            shown = np.asarray(read.convert("RGB"), np.int64)
            assert abs(shown[:48] - pictures[number][:48]).max() < 40


def test_a_small_gif_gives_up_detail_before_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (24, 32, 3), np.uint8) for _ in range(8)]
    whole = write_gif(noise, tmp_path / "whole.gif", 10.0)
    size = write_small_gif(noise, tmp_path / "small.gif", 10.0, whole // 3)
    assert size <= whole // 3
    with Image.open(tmp_path / "small.gif") as read:
        assert read.n_frames < 8
    with pytest.raises(EvaluationError, match="bytes at the smallest, expected at most 100"):
        write_small_gif(noise, tmp_path / "small.gif", 10.0, 100)
