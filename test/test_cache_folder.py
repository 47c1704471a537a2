from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from vla_simd_ros.cache_folder import cache_folder


def test_the_folder_is_where_the_environment_says_or_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "vla_simd_ros"
    for unset in ("", None):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if unset is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", unset)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_folder() == tmp_path / ".cache" / "vla_simd_ros"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(OSError, match="this user has no home folder, expected one, HOME or XDG_CACHE_HOME"):
        cache_folder()
