"""Makes what these tests share importable, and the fake backends also in the processes that they start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parent)
sys.path[:0] = [FOLDER]


@pytest.fixture(autouse=True)
def fake_backends_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
