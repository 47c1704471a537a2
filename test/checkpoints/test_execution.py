"""What a checkpoint's execution.json says of when queries start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.execution import EXECUTION, execution_file, recommended_pacing
from vla_simd_ros.control.query_timing import Pacing, QueryPacing
from vla_simd_ros.sim.demo_policy import TRAINED


def said(folder: Path, content: Any) -> Pacing | None:
    (folder / EXECUTION).write_text(json.dumps(content))
    return recommended_pacing(folder)


def test_a_checkpoint_that_says_nothing(tmp_path: Path) -> None:
    assert recommended_pacing(tmp_path) is None
    assert said(tmp_path, {}) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for pacing in (Pacing(QueryPacing.ON_DEMAND, 0), Pacing(QueryPacing.JUST_IN_TIME), Pacing()):
        assert said(tmp_path, dict(execution_file(pacing))) == pacing


def test_a_threshold_need_not_be_said(tmp_path: Path) -> None:
    assert said(tmp_path, {"query_pacing": "on_demand"}) == Pacing(QueryPacing.ON_DEMAND, 10)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"query_pacing": "often"},
            "query_pacing is 'often', expected one of continuous, on_demand",
        ),
        ({"query_pacing": "on_demand", "query_threshold": -1}, "query_threshold is -1 control steps"),
        ({"query_pacing": "on_demand", "query_threshold": "4"}, "query_threshold"),
        ({"query_pacing": 4}, "query_pacing"),
        ({"pacing": "on_demand"}, "unknown field 'pacing', expected query_pacing and query_threshold"),
        ([], "execution.json"),
    ],
)
def test_what_cannot_be(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as raised:
        said(tmp_path, content)
    assert str(tmp_path) in str(raised.value)


def test_the_trained_policy_is_followed_to_the_end_of_its_chunks() -> None:
    assert recommended_pacing(TRAINED) == Pacing(QueryPacing.ON_DEMAND, 4)
