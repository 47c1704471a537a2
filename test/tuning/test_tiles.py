from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.tuning.target import INSTRUCTION_SETS, TARGETS, Target, TargetError
from vla_simd_ros.tuning.tiles import Tile, common_divisor, feasible_tiles, select_tile, violation

AVX2, AVX512, NEON = TARGETS["avx2"], TARGETS["avx512"], TARGETS["neon"]


def no_spills(_: Tile) -> tuple[str, ...]:
    return ()


def spills_neon(tile: Tile) -> Sequence[str]:
    """What compilers do with four rows' values kept for four steps: no register is left for anything else."""
    return ("spilled",) if tile in (Tile(5, 16), Tile(10, 8)) else ()


def test_the_paper_s_choices_for_g_64() -> None:
    assert select_tile(AVX2, [64], no_spills).choice == Tile(6, 16)
    assert select_tile(NEON, [64], spills_neon).choice == Tile(4, 16)


def test_registers_of_the_paper_s_choices() -> None:
    assert Tile(6, 16).registers(AVX2) == 15
    assert Tile(4, 16).registers(NEON) == 24


def test_the_load_model_alone_favors_9x8_on_neon() -> None:
    tiles = [tile for tile in feasible_tiles(NEON, 64, spills_neon) if tile.cols == 8 or tile == Tile(4, 16)]
    by_loads = sorted(tiles, key=lambda tile: -tile.rows * tile.vectors(NEON) / tile.loads(NEON))
    assert by_loads[:2] == [Tile(9, 8), Tile(8, 8)]


def test_each_constraint_is_named() -> None:
    assert violation(Tile(7, 16), AVX2) == "(2) registers: 17 of 16"
    assert violation(Tile(3, 16), AVX2) == "(3) latency: 6 sums, 8 multiply-adds in flight"
    assert violation(Tile(14, 8), AVX2) == "(4) loads: 14 multiply-adds to 15 loads, at 2 and 2 per cycle"
    assert violation(Tile(6, 16), AVX2) is None


def test_candidates_come_with_reasons_in_the_algorithm_s_order() -> None:
    selection = select_tile(NEON, [128, 64], spills_neon)
    assert selection.divisor == 64
    reasons = {str(c.tile): c.reason for c in selection.candidates}
    assert reasons["5x16"] == "spills: spilled"
    assert reasons["4x16"] == ""
    assert "3x16" not in reasons  # the largest feasible number of rows ends a width
    widths = [c.tile.cols for c in selection.candidates]
    assert widths == sorted(widths) and set(widths) == {4, 8, 16, 32, 64}


@pytest.mark.parametrize(("widths", "divisor"), [([64], 64), ([64, 96], 32), ([512, 3200, 6], 2)])
def test_widths_have_a_common_divisor(widths: list[int], divisor: int) -> None:
    assert common_divisor(widths) == divisor


@pytest.mark.parametrize("widths", [[], [0, 64]])
def test_widths_that_are_none(widths: list[int]) -> None:
    with pytest.raises(TargetError, match="expected some, from 1"):
        common_divisor(widths)


def test_without_a_feasible_tile_weights_stay_unpacked() -> None:
    assert select_tile(AVX2, [4], no_spills).choice is None  # no whole vector divides 4
    assert select_tile(AVX2, [64], lambda _: ("spilled",)).choice is None


@st.composite
def targets(draw: st.DrawFn) -> Target:
    numbers = [draw(st.integers(1, n)) for n in (3, 3, 6)]
    isa = draw(st.sampled_from(sorted(INSTRUCTION_SETS)))
    _, lanes, registers, modes = INSTRUCTION_SETS[isa]
    mode = draw(st.sampled_from(modes))
    return Target("t", isa, lanes, draw(st.integers(registers // 2, registers)), *numbers, mode)


def allowed(target: Target, divisor: int) -> Iterator[Tile]:
    """Equations (2) to (4), written down once more."""
    for vectors in range(1, divisor // target.lanes + 1):
        if divisor % (vectors * target.lanes):
            continue
        for rows in range(1, target.registers + 1):
            lanes = target.operand_mode == "lanes"
            q = rows if lanes else 1
            loads = vectors + (Fraction(rows, target.lanes) if lanes else rows)
            if (
                rows * vectors + vectors + q <= target.registers
                and rows * vectors >= target.fmas_per_cycle * target.fma_latency
                and rows * vectors * target.loads_per_cycle >= loads * target.fmas_per_cycle
            ):
                yield Tile(rows, vectors * target.lanes)


@given(targets(), st.sampled_from([16, 48, 64, 96, 320]), st.sets(st.integers(0, 40)))
def test_the_choice_has_the_highest_score_of_all_feasible_tiles(
    target: Target, divisor: int, spilled: set[int]
) -> None:
    """Also where the early end of a width leaves tiles out."""

    def spills(tile: Tile) -> Sequence[str]:
        return ("spilled",) if (tile.rows * 7 + tile.cols) % 41 in spilled else ()

    feasible = [tile for tile in allowed(target, divisor) if not spills(tile)]
    assert sorted(feasible_tiles(target, divisor, spills)) == sorted(feasible)
    choice = select_tile(target, [divisor], spills).choice
    if not feasible:
        assert choice is None
    else:
        assert choice in feasible
        assert choice.score(target) == max(tile.score(target) for tile in feasible)
