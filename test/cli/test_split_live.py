"""The zone of a live run."""

from __future__ import annotations

import math

import pytest

from vla_simd_ros.cli.split_live import zone_of
from vla_simd_ros.hybrid.split_search import Resources
from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts

COSTS = StageCosts(tuple(BlockCost(f"layer.{i}", 0.01, 0.01, 100, 100, 0) for i in range(10)), 0.0, 1e9)


def test_it_has_the_best_cut_of_every_load_and_one_more_either_way() -> None:
    assert zone_of(COSTS, [Resources()]) == (4, 6)
    # With a third of its time left, the second side has two or three of the ten blocks.
    assert zone_of(COSTS, [Resources(), Resources(suffix_load=2 / 3)]) == (4, 9)


def test_it_stays_where_cuts_can_be() -> None:
    limited = Resources(prefix_memory=550)
    assert zone_of(COSTS, [limited, Resources(suffix_load=2 / 3, prefix_memory=550)]) == (4, 5)
    only = StageCosts((BlockCost("a", 0.1, math.inf, 0, 0, 0), *COSTS.blocks), 0.0, 1e9)
    assert zone_of(only, [Resources(prefix_load=0.9)])[0] == 1


@pytest.mark.parametrize(
    ("costs", "state", "complaint"),
    [
        (StageCosts(COSTS.blocks[:1], 0.0, 1e9), Resources(), "one block only"),
        (COSTS, Resources(prefix_memory=50), "no split is possible"),
    ],
)
def test_where_there_is_none_it_says_why(costs: StageCosts, state: Resources, complaint: str) -> None:
    with pytest.raises(CostError, match=complaint):
        zone_of(costs, [state])
