from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.tuning.tuned import (
    Choice,
    Tuned,
    TuningError,
    default_file,
    read_tuned,
    resolve,
    shape_of,
    this_machine,
    tuned_choice,
    write_tuned,
)

SMALL = {"dim_model": 16, "heads": 2, "feedforward": 24, "encoder_layers": 1, "decoder_layers": 1}
MACHINE = {"cpu": "Some CPU", "threads": 2, "isas": ("avx2", "portable")}
LAYERS = "12x16x64-64k3s1p1=winograd4"
SETTINGS = {"threads": 2, "waiting": "passive", "convolution": "measured", "convolution_layers": LAYERS}


def make(folder: Path, width: int = 48) -> Checkpoint:
    make_checkpoint("act", folder, Options(cameras=(Camera("top", 32, width),), sizes=SMALL))
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make(tmp_path_factory.mktemp("tuned") / "act")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(tmp_path: Path, **changes: Any) -> Path:
    file = tmp_path / "deep" / "tuned.json"
    write_tuned(Tuned("act-1", MACHINE, SETTINGS, ["waiting: faster"]), file)
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(content))
    return file


def test_what_is_written_is_read_again_and_readable(tmp_path: Path) -> None:
    file = written(tmp_path)
    found = read_tuned(file, "act-1", MACHINE)
    assert found == Choice(EngineSettings(**SETTINGS), "auto")
    assert found == read_tuned(file, "act-1", MACHINE)
    content = json.loads(file.read_text())
    assert content["measured"] == ["waiting: faster"] and content["machine"]["cpu"] == "Some CPU"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "is stale: format is 2, expected 1"),
        ({"vla_simd_ros": "0.0.1"}, "is stale: vla_simd_ros is '0.0.1', expected"),
        ({"checkpoint": "act-2"}, "is stale: checkpoint is 'act-2', expected 'act-1'"),
        ({"machine": {"cpu": "Another CPU"}}, "is stale: machine is {'cpu': 'Another CPU'}, expected {'cpu'"),
        ({"int8": ["head"]}, "is damaged: int8 is ['head'], expected names of groups"),
        ({"settings": []}, "is damaged: expected an object with settings"),
        ({"settings": {"speed": 9}}, "is damaged: setting 'speed' is unknown"),
        ({"settings": {"threads": "two"}}, "is damaged: threads='two': expected"),
        ({"settings": {"affinity": 1}}, "is damaged: affinity=1: expected"),
        ({"settings": {"convolution_layers": "3x3=fast"}}, "is damaged: convolution_layers: '3x3=fast'"),
    ],
)
def test_a_file_of_no_use_says_why(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError) as raised:
        read_tuned(written(tmp_path, **changes), "act-1", MACHINE)
    assert message in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b"9" * 5000])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tuned.json"
    file.write_bytes(content)
    with pytest.raises(TuningError, match="is damaged"):
        read_tuned(file, "act-1", MACHINE)


def test_checkpoints_of_one_shape_share_a_file(tmp_path: Path, checkpoint: Checkpoint) -> None:
    assert shape_of(make(tmp_path / "same")) == shape_of(checkpoint)
    assert shape_of(make(tmp_path / "wider", width=64)) != shape_of(checkpoint)
    assert shape_of(checkpoint).startswith("act-")


def write_default(checkpoint: Checkpoint, settings: dict[str, Any], **machine: Any) -> Path:
    path = default_file(shape_of(checkpoint))
    write_tuned(Tuned(shape_of(checkpoint), this_machine() | machine, settings, []), path)
    return path


def test_without_a_file_the_defaults_are_taken(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert tuned_choice(checkpoint) == Choice(EngineSettings(), "auto")
    assert "no tuned settings in" in caplog.text


def test_the_file_of_this_machine_is_used(checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture) -> None:
    path = write_default(checkpoint, SETTINGS)
    with caplog.at_level(logging.INFO):
        assert tuned_choice(checkpoint).settings == EngineSettings(**SETTINGS)
    assert f"settings from {path}" in caplog.text


@pytest.mark.parametrize("damage", ["another machine", "no JSON", "a folder"])
def test_a_file_of_no_use_is_ignored_with_a_line_in_the_log(
    checkpoint: Checkpoint, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_default(checkpoint, SETTINGS, **({"cpu": "old"} if damage == "another machine" else {}))
    if damage == "no JSON":
        path.write_text("nonsense")
    elif damage == "a folder":
        path.unlink()
        path.mkdir()
    assert tuned_choice(checkpoint) == Choice(EngineSettings(), "auto")
    (line,) = caplog.messages
    assert line.startswith("tuned settings ignored, using the defaults: ") and str(path) in line


def test_sources_of_settings(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = write_default(checkpoint, SETTINGS)
    given = EngineSettings(spin_us=7)
    assert resolve(given, checkpoint, {}).settings == given
    assert resolve(given, checkpoint, {"threads": 3}).settings == given.but(threads=3)
    assert resolve("default", checkpoint, {"threads": 3}).settings == EngineSettings(threads=3)
    tuned = EngineSettings(**SETTINGS)
    assert resolve("auto", checkpoint, {}).settings == tuned
    assert resolve(str(path), checkpoint, {"spin_us": 5}).settings == tuned.but(spin_us=5)
    with pytest.raises(FileNotFoundError):
        resolve(tmp_path / "missing.json", checkpoint, {})
    with pytest.raises(SettingError):
        resolve("auto", checkpoint, {"spin_us": -5})


def test_settings_for_other_threads_are_ignored(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    write_default(checkpoint, SETTINGS)
    assert resolve("auto", checkpoint, {"threads": 1}).settings == EngineSettings(threads=1)
    assert "tuned settings ignored: they are for another choice of threads" in caplog.text
    assert resolve("auto", checkpoint, {"threads": 2}).settings == EngineSettings(**SETTINGS)


def test_another_choice_of_algorithms_drops_those_of_single_layers(checkpoint: Checkpoint) -> None:
    write_default(checkpoint, SETTINGS)
    found = resolve("auto", checkpoint, {"convolution": "direct"}).settings
    assert (found.convolution, found.convolution_layers, found.waiting) == ("direct", "", "passive")


def test_tuned_groups_stand_in_for_auto_only(checkpoint: Checkpoint) -> None:
    path = default_file(shape_of(checkpoint))
    write_tuned(Tuned(shape_of(checkpoint), this_machine(), SETTINGS, [], "encoder.ffn,head"), path)
    assert resolve("auto", checkpoint, {}, "auto").int8 == "encoder.ffn,head"
    assert resolve("auto", checkpoint, {}, "").int8 == ""
    assert resolve("auto", checkpoint, {}, "head").int8 == "head"
    assert resolve("default", checkpoint, {}, "auto").int8 == "auto"
    assert resolve("auto", checkpoint, {"threads": 1}, "auto").int8 == "auto"
    write_default(checkpoint, SETTINGS)
    assert resolve("auto", checkpoint, {}, "auto").int8 == "auto"
