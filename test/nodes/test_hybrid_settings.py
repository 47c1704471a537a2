"""The hybrid scheduler's parameters: what they come to, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.graph.int8_groups import Int8GroupError
from vla_simd_ros.hybrid.placement import Side
from vla_simd_ros.nodes.hybrid_settings import PARAMETERS, HybridSettings, hybrid_settings
from vla_simd_ros.nodes.param import ParameterError, checked


def settings(**changes: Any) -> HybridSettings:
    return hybrid_settings(checked(PARAMETERS, {"checkpoint": "somewhere", **changes}))


def test_defaults_leave_all_to_the_machine() -> None:
    found = settings()
    assert found.options.prefix == ("simd", Side((), 1))
    assert found.options.suffix == ("simd", Side((), 0))
    assert (found.options.reserved, found.options.costs) == ((), None)
    assert not found.options.engine.changed()
    assert found.restarts.limit == 3
    assert found.late_prefix and not settings(prefix_start="at_once").late_prefix
    assert found.controller == {"margin": 0.02, "memory": 500}


def test_both_sides_and_what_is_kept_for_others() -> None:
    options = settings(
        prefix_executor="torch", prefix_cpus=[0], suffix_threads=3, reserved_cpus=[6, 7], nice=5,
        waiting="passive", costs="costs.json", zone_first=2, zone_last=5, cut=3, precision="int8",
    ).options  # fmt: skip
    assert options.prefix == ("torch", Side((0,), 1))
    assert options.suffix == ("simd", Side((), 3))
    assert (options.reserved, options.nice, options.costs) == ((6, 7), 5, Path("costs.json"))
    assert options.engine.changed() == {"waiting": "passive"}
    assert (options.zone_first, options.zone_last, options.cut, options.int8) == (2, 5, 3, "all")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"suffix_cpus": [0, 0]}, r"suffix_cpus: got \[0, 0\], expected different CPUs, or -1 alone"),
        ({"reserved_cpus": [-1, 3]}, r"reserved_cpus: got \[-1, 3\], expected different CPUs"),
        ({"nice": 20}, "nice: got 20, expected 0 to 19"),
        ({"prefix_executor": "abacus"}, "prefix_executor: got 'abacus', expected one of simd"),
        ({"stall_timeout": 0.0}, "stall_timeout: got 0.0, expected above 0"),
        ({"cut_margin": 1.0}, "cut_margin: got 1.0, expected 0.0 to 0.99"),
        ({"prefix_start": "later"}, "prefix_start: got 'later', expected one of just_in_time, at_once"),
        ({"cut_memory": 0}, "cut_memory: got 0, expected 1 to 1000000"),
        ({"restart_pause": 31.0}, "restart_pause: got 31.0, expected 0.0 to 30.0"),
    ],
)
def test_what_cannot_be_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        settings(**changes)


def test_precision_and_groups_contradict_each_other() -> None:
    with pytest.raises(Int8GroupError, match="expected one of the two"):
        settings(precision="int8", int8="head")
