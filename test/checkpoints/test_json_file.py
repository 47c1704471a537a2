from __future__ import annotations

import os
from pathlib import Path

import pytest

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import describe, field, read_json_object


def test_reads_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, 2]}')

    assert read_json_object(path) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": 1,\n "b": }', "malformed JSON at line 2"),
        (b"", "malformed JSON at line 1"),
        (b"[1]", "got a list, expected an object"),
        (b"null", "got null, expected an object"),
        (b'{"a": "\xff"}', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
    ],
)
def test_names_the_file_and_what_is_wrong(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=complaint) as caught:
        read_json_object(path)
    assert "broken.json" in str(caught.value)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()

    for name in ("pipe.json", "folder.json"):
        with pytest.raises(CheckpointError, match=rf"{name}: is no regular file"):
            read_json_object(tmp_path / name)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.json: no such file"):
        read_json_object(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("value", "kind"), [("x", str), (3, int), (3, float), (0.5, float), (True, bool), ([], list), ({}, dict)]
)
def test_field_of_the_right_type(value: object, kind: type) -> None:
    assert field({"name": value}, "name", kind, "file") == value


@pytest.mark.parametrize(
    ("value", "kind", "complaint"),
    [
        ("8", int, r"'name' is a string \('8'\), expected an integer"),
        (0.5, int, r"'name' is a number \(0.5\), expected an integer"),
        (True, int, "'name' is true, expected an integer"),
        (False, float, "'name' is false, expected a number"),
        (float("nan"), float, "'name' is nan, expected a finite number"),
        (float("inf"), float, "'name' is inf, expected a finite number"),
        (10**400, float, "'name' is 10000"),
        ("false", bool, r"'name' is a string \('false'\), expected true or false"),
        (1, bool, r"'name' is an integer \(1\), expected true or false"),
        (None, str, "'name' is null, expected a string"),
        ([1], dict, "'name' is a list, expected an object"),
    ],
)
def test_field_of_another_type(value: object, kind: type, complaint: str) -> None:
    with pytest.raises(CheckpointError, match=f"file: {complaint}"):
        field({"name": value}, "name", kind, "file")


def test_missing_field() -> None:
    with pytest.raises(CheckpointError, match="file: 'name' is missing, expected a string"):
        field({}, "name", str, "file")


def test_long_values_are_cut() -> None:
    assert len(describe("x" * 1000)) < 100
