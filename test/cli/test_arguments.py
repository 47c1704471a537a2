"""Arguments that several commands share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vla_simd_ros.cli.arguments import OutputError, check_outputs


def test_outputs_that_can_be_written_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.json").write_text("{}")
    check_outputs(None, Path("new.json"), tmp_path / "old.json")
    assert not (tmp_path / "new.json").exists()


def test_others_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=f"cannot write {tmp_path}: it is a folder, expected a file"):
        check_outputs(tmp_path / "a.json", tmp_path)
    missing = tmp_path / "none" / "a.json"
    with pytest.raises(OutputError, match=f"cannot write {missing}: there is no folder {missing.parent}"):
        check_outputs(missing)


def test_what_is_not_writable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (old := tmp_path / "old.json").write_text("{}")
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode == os.W_OK and path in (tmp_path, old)))
    with pytest.raises(OutputError, match=f"cannot write {tmp_path}/a: {tmp_path} is not writable"):
        check_outputs(tmp_path / "a")
    with pytest.raises(OutputError, match=f"cannot write {old}: {old} is not writable"):
        check_outputs(old)
