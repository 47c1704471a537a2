"""Which checkpoints the simulated robot accepts, and the random one that is made once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from vla_simd_ros import heartbeat
from vla_simd_ros.checkpoints import load_checkpoint, synthesis
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.sim import demo_policy
from vla_simd_ros.sim.demo_policy import CheckpointMismatch, image_size, random_checkpoint

SMALL = {"dim_model": 32, "heads": 2, "feedforward": 32, "chunk_size": 8, "encoder_layers": 1}


def small_act(folder: Path, cameras: Sequence[Camera], state: int = 6, action: int = 6) -> Path:
    options = Options(cameras=tuple(cameras), state_dim=state, action_dim=action, sizes=SMALL)
    make_checkpoint("act", folder / "act", options)
    return folder / "act"


def test_pictures_have_the_size_that_the_policy_wants(tmp_path: Path) -> None:
    folder = small_act(tmp_path, [Camera("front", 64, 96), Camera("wrist", 64, 96)])
    assert image_size(load_checkpoint(folder)) == (96, 64)


def test_one_of_the_cameras_is_enough(tmp_path: Path) -> None:
    assert image_size(load_checkpoint(small_act(tmp_path, [Camera("wrist", 64, 64)]))) == (64, 64)


@pytest.mark.parametrize(
    ("cameras", "state", "action", "message"),
    [
        ([Camera("top", 64, 64)], 6, 6, "looks through cameras top; the simulated robot has front, wrist"),
        ([Camera("front", 64, 64), Camera("wrist", 32, 64)], 6, 6, "the simulated cameras share one size"),
        ([Camera("front", 64, 64)], 7, 6, r"observation.state has shape \(7,\).*has 6 joints"),
        ([Camera("front", 64, 64)], 6, 5, r"action has shape \(5,\).*has 6 joints"),
    ],
)
def test_policies_of_other_robots_are_refused(
    tmp_path: Path, cameras: list[Camera], state: int, action: int, message: str
) -> None:
    folder = small_act(tmp_path, cameras, state, action)
    with pytest.raises(CheckpointMismatch, match=message):
        image_size(load_checkpoint(folder))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vla_simd_ros"


def test_the_random_checkpoint_is_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def small(policy: str, folder: Path, options: Options) -> int:
        made.append(folder)
        assert policy == "impact"
        return make_checkpoint("act", folder, Options(seed=options.seed, sizes=SMALL))

    monkeypatch.setattr(synthesis, "make_checkpoint", small)
    said: list[str] = []
    first = random_checkpoint(said.append)
    assert random_checkpoint(said.append) == first
    assert len(made) == 1
    assert len(said) == 1 and "making a random full-size impact checkpoint" in said[0]
    assert list(cache.iterdir()) == [first]
    assert load_checkpoint(first).type == "act"


@pytest.mark.parametrize("policy", demo_policy.SMALL)
def test_a_small_policy_of_each_kind_fits_the_robot(cache: Path, policy: str) -> None:
    said: list[str] = []
    folder = random_checkpoint(said.append, policy, small=True)
    assert random_checkpoint(said.append, policy, small=True) == folder
    assert len(said) == 1
    checkpoint = load_checkpoint(folder)
    assert checkpoint.type == policy
    image_size(checkpoint)
    assert sum(file.stat().st_size for file in folder.rglob("*")) < 100e6


def test_an_interrupted_making_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(policy: str, folder: Path, options: Options) -> int:
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise KeyboardInterrupt

    monkeypatch.setattr(synthesis, "make_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        random_checkpoint(lambda _: None)
    assert list(cache.iterdir()) == []


def test_long_making_is_not_silent(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def slow(policy: str, folder: Path, options: Options) -> int:
        folder.mkdir()
        while not any("still making" in text for text in said):
            pass
        return 0

    monkeypatch.setattr(heartbeat, "PERIOD_S", 0.01)
    monkeypatch.setattr(synthesis, "make_checkpoint", slow)
    random_checkpoint(said.append)
    assert any("still making the checkpoint" in text for text in said)
