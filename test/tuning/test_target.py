from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.tuning.target import TARGETS, Target, TargetError, find_target


@pytest.mark.parametrize("name", TARGETS)
def test_known_targets_have_the_instruction_set_of_their_name(name: str) -> None:
    assert find_target(name).isa == name


def test_a_file_describes_a_target(tmp_path: Path) -> None:
    file = tmp_path / "cortex_a55.json"
    target = Target("cortex_a55", "neon", 4, 32, 1, 1, 4, "lanes")
    file.write_text(json.dumps(asdict(target)))
    assert find_target(str(file)) == target
    assert target.architecture == "aarch64"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": 0}, "lanes is 0, expected 1 or more"),
        ({"registers": True}, "registers is True, expected 1 or more"),
        ({"fma_latency": 4.5}, "fma_latency is 4.5, expected 1 or more"),
        ({"operand_mode": "gather"}, "operand_mode is 'gather', expected broadcast or lanes"),
        ({"isa": "sse2"}, "isa is 'sse2', expected one of avx2, avx512, neon"),
        ({"isa": ["neon"]}, "isa is \\['neon'\\], expected one of avx2, avx512, neon"),
        ({"lanes": 8}, "lanes is 8, expected 4 for neon"),
        ({"registers": 10**8}, "registers is 100000000, expected at most 32 for neon"),
        ({"vectors": 2}, "'vectors' is unknown"),
        (
            {"fmas_per_cycle": 10**9},
            "target.json: target 'neon': fmas_per_cycle is 1000000000, expected at most 16",
        ),
        ({"loads_per_cycle": 17}, "loads_per_cycle is 17, expected at most 16"),
        ({"fma_latency": 10**9}, "fma_latency is 1000000000, expected at most 100"),
        (
            {"isa": "avx2", "lanes": 8, "registers": 16},
            "operand_mode is 'lanes', expected broadcast for avx2",
        ),
        ({"name": None}, "name is None, expected printable text"),
        ({"name": ""}, "name is '', expected printable text"),
        ({"name": "a\nb"}, r"name is 'a\\nb', expected printable text"),
    ],
)
def test_a_description_that_makes_no_sense(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "target.json"
    file.write_text(json.dumps({**asdict(TARGETS["neon"]), **change}))
    with pytest.raises(TargetError, match=message):
        find_target(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"name": "x", "name": "y"}', "not JSON: 'name' is there twice"),
        ("[]", "expected an object with name"),
        ('{"name": "x"}', "'isa' is missing"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "target.json"
    file.write_text(text)
    with pytest.raises(TargetError, match=message):
        find_target(str(file))


def test_an_unknown_name() -> None:
    with pytest.raises(
        TargetError, match="'avx3' is unknown and no file, expected one of avx2, avx512, neon"
    ):
        find_target("avx3")
