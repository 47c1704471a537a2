from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.action_statistics import read_action_statistics

RANGES = {"q01": [-1, -0.5, 0], "q99": [1.0, 0.5, 1], "mask": [True, True, False], "mean": [0, 0, 0]}
OTHER = {"q01": [-2.0], "q99": [2.0]}


def sets(**named: Any) -> dict[str, Any]:
    return {name: {"action": action, "num_trajectories": 3} for name, action in named.items()}


def test_the_only_data_set_is_taken(tmp_path: Path) -> None:
    found = read_action_statistics(tmp_path, {"norm_stats": sets(bridge_orig=RANGES)})
    assert (found.key, found.width) == ("bridge_orig", 3)
    np.testing.assert_array_equal(found.low, [-1, -0.5, 0])
    np.testing.assert_array_equal(found.high, [1, 0.5, 1])
    np.testing.assert_array_equal(found.scaled, [True, True, False])


def test_the_named_data_set_is_taken_and_all_columns_are_scaled_without_a_mask(tmp_path: Path) -> None:
    config = {"norm_stats": sets(bridge_orig=RANGES, taco=OTHER), "unnorm_key": "taco"}
    found = read_action_statistics(tmp_path, config)
    assert (found.key, found.width, found.scaled.tolist()) == ("taco", 1, [True])


def test_a_file_of_its_own_goes_before_config_json(tmp_path: Path) -> None:
    (tmp_path / "dataset_statistics.json").write_text(json.dumps(sets(tuned=OTHER)))
    assert read_action_statistics(tmp_path, {"norm_stats": sets(bridge_orig=RANGES)}).key == "tuned"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "has no 'norm_stats', nor is there .*dataset_statistics.json"),
        (
            {"norm_stats": sets(b=RANGES, a=OTHER)},
            "statistics of 2 data sets; name your robot's as 'unnorm_key' .*: a, b",
        ),
        ({"norm_stats": {}}, "statistics of 0 data sets; .*: none"),
        (
            {"norm_stats": sets(b=RANGES, a=OTHER), "unnorm_key": "bridge"},
            "unnorm_key is 'bridge', expected one of a, b",
        ),
        ({"norm_stats": {"a": 3}}, "statistics of 'a' are an integer"),
        ({"norm_stats": {"a": {}}}, "statistics of 'a': 'action' is missing"),
        ({"norm_stats": sets(a={"q99": [1]})}, "statistics of 'a': 'q01' is missing"),
        (
            {"norm_stats": sets(a={"q01": [], "q99": []})},
            "q01 has 0 values, q99 0, expected as many, 1 or more",
        ),
        ({"norm_stats": sets(a={"q01": [0, 1], "q99": [1]})}, "q01 has 2 values, q99 1, expected as many"),
        ({"norm_stats": sets(a={"q01": [0, "x"], "q99": [1, 1]})}, r"'q01\[1\]' is a string"),
        (
            {"norm_stats": sets(a={"q01": [0, 2], "q99": [1, 1]})},
            r"q01 is 2.0 in column 1, expected at most q99 \(1.0\)",
        ),
        ({"norm_stats": sets(a={**OTHER, "mask": [1]})}, r"mask is \[1\], expected 1 times true or false"),
        ({"norm_stats": sets(a={**OTHER, "mask": []})}, r"mask is \[\], expected 1 times true or false"),
    ],
    ids=str,
)
def test_statistics_that_do_not_fit_are_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_action_statistics(tmp_path, config)
