from __future__ import annotations

import errno
import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import OptionError, Options, make_checkpoint
from vla_simd_ros.checkpoints.synthesis import folder as synthesis_folder

SMALL = {"dim_model": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "chunk_size": 4}


def make(folder: Path, **changes: object) -> Path:
    settings = {"n_vae_encoder_layers": 1}
    options = {"cameras": (), "env_state_dim": 2, "sizes": SMALL, "settings": settings, **changes}
    make_checkpoint("act", folder, Options(**options))  # type: ignore[arg-type]
    return folder


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    first, again, other = (make(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))

    assert digest(first) == digest(again)
    assert digest(first)["model.safetensors"] != digest(other)["model.safetensors"]
    assert digest(first)["config.json"] == digest(other)["config.json"]


def test_files_are_those_of_lerobot(tmp_path: Path) -> None:
    folder = make(tmp_path / "a")

    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "policy_postprocessor.json",
        "policy_postprocessor_step_0_unnormalizer_processor.safetensors",
        "policy_preprocessor.json",
        "policy_preprocessor_step_3_normalizer_processor.safetensors",
    ]
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize(("dtype", "error"), [("fp16", 2.0**-11), ("bf16", 2.0**-8)])
def test_stored_types_round_to_nearest(tmp_path: Path, dtype: str, error: float) -> None:
    exact = load_checkpoint(make(tmp_path / "exact"))
    rounded = load_checkpoint(make(tmp_path / dtype, dtype=dtype))

    halves = (tmp_path / dtype / "model.safetensors").stat().st_size
    assert halves < 0.6 * (tmp_path / "exact" / "model.safetensors").stat().st_size
    for name in exact.tensors:
        a, b = exact.weights.tensor(name), rounded.weights.tensor(name)
        assert (np.abs(a - b) <= error * np.abs(a) + 1e-7).all(), name


def test_statistics_are_plausible(tmp_path: Path) -> None:
    stats = load_file(make(tmp_path / "a") / "policy_postprocessor_step_0_unnormalizer_processor.safetensors")

    for name in ("observation.state", "action"):
        assert np.abs(stats[f"{name}.mean"]).max() <= 0.3
        assert 0.2 <= stats[f"{name}.std"].min() <= stats[f"{name}.std"].max() <= 0.6
        order = [stats[f"{name}.{s}"] for s in ("min", "q01", "q10", "mean", "q90", "q99", "max")]
        assert all((low < high).all() for low, high in itertools.pairwise(order))


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "precious").touch()

    with pytest.raises(OptionError, match="exists already, expected a new or empty folder"):
        make(tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["precious"]
    with pytest.raises(OptionError, match="exists already"):
        make(tmp_path / "a" / "precious")


def test_empty_and_nested_folders_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty")
    make(tmp_path / "new" / "deep")

    assert (tmp_path / "empty" / "config.json").is_file()
    assert (tmp_path / "new" / "deep" / "config.json").is_file()


def test_remains_of_an_interrupted_run_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".a.partial").mkdir()
    (tmp_path / ".a.partial" / "half").touch()
    make(tmp_path / "a")

    assert json.loads((tmp_path / "a" / "config.json").read_text())["type"] == "act"
    assert not (tmp_path / ".a.partial").exists()


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(synthesis_folder, "_write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        make(tmp_path / "a")

    assert list(tmp_path.iterdir()) == []
