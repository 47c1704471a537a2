from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros import __version__
from vla_simd_ros.tuning import tuning_file
from vla_simd_ros.tuning.tuning_file import Tuned, TuningError, differing, read_tuning_file, write_tuned

MACHINE = {"cpu": "Some CPU", "threads": 2, "isas": ["avx2", "portable"]}
TUNED = Tuned("act-1", MACHINE, {"waiting": "passive"}, ["waiting: faster"], "head")


def written(tmp_path: Path, **changes: Any) -> Path:
    """A file with entries replaced, or left out where they are ..."""
    file = tmp_path / "deep" / "tuned.json"
    write_tuned(TUNED, file)
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    return file


def test_what_is_written_is_read_again_and_readable(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "tuned.json"
    write_tuned(TUNED, file)
    assert read_tuning_file(file) == TUNED
    content = json.loads(file.read_text())
    assert (content["format"], content["vla_simd_ros"]) == (1, __version__)
    assert '\n "measured": [\n  "waiting: faster"\n ]' in file.read_text()
    assert list(file.parent.iterdir()) == [file]
    assert read_tuning_file(written(tmp_path, int8=...)).int8 is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2, "new": 1}, "is stale: format is 2, expected 1"),
        ({"format": True}, "is stale: format is True, expected 1"),
        ({"format": ...}, "is stale: format is nothing, expected 1"),
        ({"vla_simd_ros": "0.0.1"}, "is stale: vla_simd_ros is '0.0.1', expected"),
        ({"Int8": "head"}, "is damaged: 'Int8' is unknown, expected format, vla_simd_ros, checkpoint"),
        ({"machine": ...}, "is damaged: 'machine' is missing, expected an object that describes it"),
        ({"checkpoint": 7}, "is damaged: checkpoint is 7, expected the name of a shape"),
        ({"machine": "mine"}, "is damaged: machine is 'mine', expected an object"),
        ({"measured": "much"}, "is damaged: measured is 'much', expected a list of lines"),
        ({"int8": ["head"]}, "is damaged: int8 is ['head'], expected names of groups"),
        ({"int8": None}, "is damaged: int8 is nothing, expected names of groups"),
        ({"settings": []}, "is damaged: settings is [], expected an object with settings"),
        ({"settings": "s" * 5000}, "..., expected an object with settings"),
    ],
)
def test_a_file_of_no_use_says_why(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError) as raised:
        read_tuning_file(path := written(tmp_path, **changes))
    assert str(raised.value).startswith(str(path)) and message in str(raised.value)
    assert len(str(raised.value)) < len(str(path)) + 300


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b"9" * 5000])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tuned.json"
    file.write_bytes(content)
    with pytest.raises(TuningError, match="is damaged"):
        read_tuning_file(file)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    content = written(tmp_path).read_bytes().rstrip()
    file = tmp_path / "cut.json"
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        with pytest.raises(TuningError, match="is damaged"):
            read_tuning_file(file)


def test_an_entry_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text().replace('"settings": {', '"settings": {"threads": 1, "threads": 2, '))
    with pytest.raises(TuningError, match="is damaged: 'threads' is there twice, expected it once"):
        read_tuning_file(file)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TuningError, match="pipe is no regular file"):
        read_tuning_file(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        read_tuning_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_tuning_file(tmp_path / "missing.json")


def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuned.json"
    write_tuned(TUNED, file)

    def interrupted(path: Path, *_: Any, **__: Any) -> None:
        path.write_bytes(b'{"format"')
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning_file.Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_tuned(Tuned("act-2", {}, {}, []), file)
    assert list(tmp_path.iterdir()) == [file] and read_tuning_file(file) == TUNED


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1}}, ""),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "m.a.b is 1, expected 2"),
        ({"a": 1, "c": 3}, {"a": 1}, "m.c is 3, expected nothing"),
        ({"a": 1.0}, {"a": 1}, "m.a is 1.0, expected 1"),
        ({}, {"a": [1]}, "m.a is nothing, expected [1]"),
    ],
)
def test_the_first_difference_is_named(found: Any, expected: Any, difference: str) -> None:
    assert differing("m", found, expected) == difference
