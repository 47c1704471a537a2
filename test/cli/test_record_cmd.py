"""``vla_simd record``: a real recording of a few episodes, its progress and its errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'vla_simd_ros[dataset]'")

from vla_simd_ros.cli import record_cmd
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.datasets.lerobot_v3 import open_dataset

SMALL = ("--size", "16x24", "--renderer", "opencv")


def test_records_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_cmd, "_PROGRESS_S", 0.0)
    out = tmp_path / "demos"
    assert main(["record", "--out", str(out), "--episodes", "1", *SMALL]) == 0
    printed = capsys.readouterr().out
    assert "1 of 1 episodes, 0 failed; 0 s left" in printed
    assert f"wrote 1 episodes, {len(open_dataset(out))} frames, to {out}" in printed
    assert main(["record", "--out", str(out), "--episodes", "1", "--resume", *SMALL]) == 0
    resumed = capsys.readouterr().out
    assert "going on after 1 episodes" in resumed
    assert "wrote 1 episodes" in resumed
    dataset = open_dataset(out)
    assert [each.tasks for each in dataset.episodes] == [(task,) for task in dataset.tasks]
    frame = dataset.frame(len(dataset) - 1)
    assert frame["observation.images.front"].shape == (16, 24, 3)
    assert np.abs(frame["action"]).max() < 3.0


def test_an_existing_recording_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demos"
    (out / "meta").mkdir(parents=True)
    (out / "meta/info.json").write_text("{}")
    assert main(["record", "--out", str(out)]) == 2
    assert "holds a dataset already" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["96", "0x10", "96x128x3", "axb"])
def test_bad_sizes(tmp_path: Path, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", "--out", str(tmp_path), "--size", size])
    assert f"'{size}' is no size, expected HEIGHTxWIDTH like 96x128" in capsys.readouterr().err


def test_impossible_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--out", str(tmp_path), "--episodes", "0"]) == 2
    assert "episodes: got 0, expected at least 1" in capsys.readouterr().err
