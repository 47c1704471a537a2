from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.tuning import tuned
from vla_simd_ros.tuning.tuned import (
    Choice,
    default_file,
    read_tuned,
    resolve,
    shape_of,
    this_machine,
    tuned_choice,
)
from vla_simd_ros.tuning.tuning_file import Tuned, TuningError, write_tuned

SMALL = {"dim_model": 32, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1}
LAYERS = "8x12x32-32k3s1p1=winograd4"
NARROW = {"backbone_width": 32}
SETTINGS = {"threads": 2, "waiting": "passive", "convolution": "measured", "convolution_layers": LAYERS}


def make(folder: Path, width: int = 48) -> Checkpoint:
    make_checkpoint("act", folder, Options(cameras=(Camera("top", 32, width),), sizes=SMALL, settings=NARROW))
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make(tmp_path_factory.mktemp("tuned") / "act")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_checkpoints_of_one_shape_share_a_file(tmp_path: Path, checkpoint: Checkpoint) -> None:
    assert shape_of(make(tmp_path / "same")) == shape_of(checkpoint)
    assert shape_of(make(tmp_path / "wider", width=64)) != shape_of(checkpoint)
    assert shape_of(checkpoint).startswith("act-")


def write_default(checkpoint: Checkpoint, settings: dict[str, Any], **machine: Any) -> Path:
    path = default_file(shape_of(checkpoint))
    write_tuned(Tuned(shape_of(checkpoint), this_machine() | machine, settings, []), path)
    return path


def edited(checkpoint: Checkpoint, /, **changes: Any) -> Path:
    """The file that is looked for, as somebody changed it by hand."""
    path = write_default(checkpoint, SETTINGS)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def test_what_is_written_is_read_again(checkpoint: Checkpoint) -> None:
    path = write_default(checkpoint, SETTINGS)
    assert read_tuned(path, checkpoint, this_machine()) == Choice(EngineSettings(**SETTINGS), "auto")


GROUPS = "backbone.conv, tokens, encoder.attention, encoder.ffn, decoder.attention, decoder.ffn, head, all"
BAD = [
    ({"checkpoint": "act-2"}, "is stale: checkpoint is 'act-2', expected 'act-"),
    ({"machine": {"cpu": "Another"}}, "is stale: machine.cpu is 'Another', expected '"),
    ({"machine": this_machine() | {"isas": ["sse"]}}, "is stale: machine.isas is ['sse'], expected ["),
    ({"settings": {"speed": 9}}, "is damaged: setting 'speed' is unknown"),
    ({"settings": {"self": 9}}, "is damaged: setting 'self' is unknown"),
    ({"settings": {"threads": "two"}}, "is damaged: threads='two': expected 0 to 1024"),
    ({"settings": {"threads": -1}}, "is damaged: threads=-1: expected 0 to 1024"),
    ({"settings": {"threads": 1e300}}, "is damaged: threads=1e+300: expected 0 to 1024"),
    ({"settings": {"spin_us": float("nan")}}, "is damaged: spin_us=nan: expected 0 to"),
    ({"settings": {"affinity": 1}}, "is damaged: affinity=1: expected 0 to"),
    ({"settings": {"affinity": [0, 0]}}, "is damaged: affinity=(0, 0): expected each CPU once"),
    ({"settings": {"convolution_layers": "3x3=fast"}}, "is damaged: convolution_layers: '3x3=fast'"),
    (
        {"settings": {"convolution_layers": f"{LAYERS}, 9x9x64-64k3s1p1=direct"}},
        "is damaged: convolution_layers: the policy has no layer 9x9x64-64k3s1p1, expected some of 32x48x3-",
    ),
    ({"int8": "head,legs"}, f"is damaged: int8 group 'legs' is unknown, this policy has: {GROUPS}"),
    ({"int8": "auto"}, f"is damaged: int8 group 'auto' is unknown, this policy has: {GROUPS}"),
    (
        {"settings": {"isa": "mmx"}},
        "is not for this machine: isa='mmx': unknown instruction set, available here",
    ),
    ({"settings": {"affinity": [9999]}}, "is not for this machine: affinity: CPU 9999 does not exist"),
    ({"settings": {"affinity": [1000]}}, "is not for this machine: affinity: "),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_file_of_no_use_says_why_and_stops_nothing(
    checkpoint: Checkpoint, changes: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = edited(checkpoint, **changes)
    with pytest.raises(TuningError) as raised:  # where the file is asked for
        resolve(path, checkpoint, {})
    assert str(raised.value).startswith(f"{path} {message}")
    assert resolve("auto", checkpoint, {}) == Choice(EngineSettings(), "")  # where it happens to be there
    assert caplog.messages == [f"tuned settings ignored, using the defaults: {raised.value}"]


def test_an_instruction_set_and_cpus_that_are_here(checkpoint: Checkpoint) -> None:
    cpu = min(os.sched_getaffinity(0))
    path = edited(checkpoint, settings={"isa": "portable", "affinity": [cpu]}, int8="encoder,head")
    before = os.sched_getaffinity(0)
    found = resolve(path, checkpoint, {}, "auto")
    assert found == Choice(EngineSettings(isa="portable", affinity=(cpu,)), "encoder,head")
    assert os.sched_getaffinity(0) == before


def test_kernels_that_the_environment_forces_are_another_machine(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_default(checkpoint, SETTINGS)
    monkeypatch.setenv("VLA_SIMD_ISA", "portable")
    with pytest.raises(TuningError, match=r"is stale: machine.forced is nothing, expected \{'VLA_SIMD_ISA'"):
        resolve(path, checkpoint, {})
    write_default(checkpoint, SETTINGS)
    assert resolve(path, checkpoint, {}).settings == EngineSettings(**SETTINGS)
    monkeypatch.delenv("VLA_SIMD_ISA")
    with pytest.raises(TuningError, match="expected nothing"):
        resolve(path, checkpoint, {})


def test_a_wrong_name_in_the_environment_is_no_matter_of_the_file(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLA_SIMD_ISA", "mmx")
    path = edited(checkpoint, settings={"affinity": [min(os.sched_getaffinity(0))]})
    assert resolve(path, checkpoint, {}).settings.affinity


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


def test_a_user_without_a_home_has_the_defaults(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nowhere() -> Path:
        raise OSError(errno.EINVAL, "this user has no home folder")

    monkeypatch.setattr(tuned, "cache_folder", nowhere)
    assert tuned_choice(checkpoint) == Choice(EngineSettings(), "auto")
    assert "using the defaults: [Errno 22] this user has no home folder" in caplog.text


def test_sources_of_settings(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = write_default(checkpoint, SETTINGS)
    given = EngineSettings(spin_us=7)
    assert resolve(given, checkpoint, {}).settings == given
    assert resolve(given, checkpoint, {"threads": 3}).settings == given.but(threads=3)
    assert resolve("default", checkpoint, {"threads": 3}).settings == EngineSettings(threads=3)
    found = EngineSettings(**SETTINGS)
    assert resolve("auto", checkpoint, {}).settings == found
    assert resolve(str(path), checkpoint, {"spin_us": 5}).settings == found.but(spin_us=5)
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
