from __future__ import annotations

import pytest

from vla_simd_ros.tuning.pass_costs import PassCostError, PassCosts, measure_passes

COSTS = PassCosts({1: 4.0, 4: 6.0, 8: 10.0})


def test_costs_between_and_above_what_was_measured() -> None:
    assert [COSTS.ms(tokens) for tokens in (1, 2, 4, 6, 8, 16)] == pytest.approx(
        [4.0, 4.0 + 2.0 / 3, 6.0, 8.0, 10.0, 20.0]
    )
    assert COSTS.break_even(4) == 1.5
    assert COSTS.break_even(8) == 2.5


def test_the_block_that_decodes_fastest() -> None:
    assert COSTS.best_block({4: 1.4, 8: 2.4}) == 1
    assert COSTS.best_block({4: 1.6, 8: 2.4}) == 4
    assert COSTS.best_block({4: 1.6, 8: 4.0}) == 8
    assert COSTS.best_block({4: 1.5}) == 1  # as fast: the simpler one
    assert COSTS.best_block({4: 0.0}) == 1
    assert COSTS.best_block({}) == 1


@pytest.mark.parametrize(
    "ms", [{2: 1.0}, {1: 0.0}, {1: float("nan")}, {1: float("inf")}, {1: 1.0, 0: 1.0}, {}]
)
def test_costs_that_make_no_sense_are_refused(ms: dict[int, float]) -> None:
    with pytest.raises(PassCostError):
        PassCosts(ms)
    with pytest.raises(PassCostError):
        COSTS.ms(0)


def test_costs_as_json() -> None:
    assert COSTS.to_json() == {"1": 4.0, "4": 6.0, "8": 10.0}


def test_sizes_take_turns_and_the_shortest_time_counts() -> None:
    asked: list[int] = []

    def run(tokens: int) -> float:
        asked.append(tokens)
        return tokens + (5.0 if len(asked) % 2 else 1.0)

    costs = measure_passes(run, (1, 2), 2)
    assert asked == [1, 2, 1, 2, 2, 1]
    assert costs.ms_by_tokens == {1: 2.0, 2: 3.0}
    with pytest.raises(PassCostError, match="0 repeats"):
        measure_passes(run, (1, 2), 0)
