"""Makes what these tests share importable, and gives the cores back that a test has taken a thread to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent)]


@pytest.fixture(autouse=True)
def cores_given_back() -> Iterator[None]:
    """Stages that run in the test's own thread take it to their cores."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)
