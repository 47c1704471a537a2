"""Costs and their file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts, read_costs, write_costs

VISION = BlockCost("vision", 0.2, math.inf, 10, 0, 100)
LAYER = BlockCost("layer", 0.1, 0.3, 20, 20, 50)
COSTS = StageCosts((VISION, LAYER), transfer_s=0.01, transfer_rate=1000.0, suffix_threads=8, saturation=0.5)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    write_costs(COSTS, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == COSTS


def test_a_transfer_takes_its_time_where_something_crosses() -> None:
    assert [COSTS.transfer(blocks) for blocks in range(3)] == [0.0, pytest.approx(0.11), 0.0]


def test_fewer_threads_are_slower_below_saturation() -> None:
    assert [COSTS.suffix_slowdown(threads) for threads in (16, 8, 4, 2, 1)] == [1.0, 1.0, 1.0, 2.0, 4.0]
    with pytest.raises(CostError, match="has 0 threads"):
        COSTS.suffix_slowdown(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": ()}, "there are no blocks"),
        ({"blocks": (LAYER, LAYER)}, "block 'layer' is there twice"),
        ({"blocks": (replace(LAYER, prefix_s=-1.0),)}, "prefix_s of block 'layer' is -1.0"),
        ({"blocks": (replace(LAYER, suffix_s=math.nan),)}, "suffix_s of block 'layer' is nan"),
        ({"blocks": (replace(VISION, prefix_s=math.inf),)}, "block 'vision' runs on neither side"),
        ({"transfer_s": -0.1}, "transfer_s is -0.1"),
        ({"transfer_rate": 0.0}, "transfer_rate is 0.0"),
        ({"saturation": 1.5}, "saturation is 1.5"),
        ({"suffix_threads": 0}, "suffix_threads is 0"),
        ({"prefix_base_bytes": -1}, "prefix_base_bytes is -1, expected 0 or more"),
        ({"whole_bytes": -1}, "whole_bytes is -1, expected 0 or more"),
        ({"blocks": (replace(LAYER, name="a\x1b[31m"),)}, r"a block's name is 'a\\x1b\[31m', expected one"),
    ],
)
def test_costs_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CostError, match=message):
        replace(COSTS, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "expected an object with 'format': 1"),
        ({"blocks": None}, "'blocks' is missing or no list"),
        ({"blocks": [3]}, r"blocks\[0\]: expected an object"),
        ({"blocks": [{"name": "a"}]}, r"blocks\[0\]: 'prefix_s' is missing"),
        ({"transfer_s": 10**400}, "the costs: 'transfer_s' is 1000+, expected float"),
        ({"whole_bytes": 10**400}, "the costs: 'whole_bytes' is 1000+, expected int"),
        ({"transfer_rate": "fast"}, "the costs: 'transfer_rate' is 'fast', expected float"),
        ({"suffix_threads": True}, "'suffix_threads' is True, expected int"),
        ({"colour": 1}, "'colour' is unknown, expected: blocks"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "costs.json"
    write_costs(COSTS, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CostError, match=message) as found:
        read_costs(path)
    assert str(path) in str(found.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CostError, match=r"missing\.json: cannot be read: No such file"):
        read_costs(tmp_path / "missing.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(CostError, match=r"text\.json: is no JSON"):
        read_costs(tmp_path / "text.json")
