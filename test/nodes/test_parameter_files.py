"""The parameter files list every parameter of their node, with its default, and a comment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vla_simd_ros.nodes import executor_settings, hybrid_settings, policy_settings
from vla_simd_ros.nodes.parameters import Param

CONFIG = Path(__file__).parents[2] / "config"
FILES = [
    ("policy_node.yaml", policy_settings.PARAMETERS),
    ("hybrid_scheduler.yaml", hybrid_settings.PARAMETERS),
    ("chunk_executor.yaml", executor_settings.PARAMETERS),
]


@pytest.mark.parametrize(("name", "parameters"), FILES)
def test_a_file_lists_every_parameter_with_its_default(name: str, parameters: list[Param]) -> None:
    values: dict[str, Any] = yaml.safe_load((CONFIG / name).read_text())["/**"]["ros__parameters"]
    assert values == {param.name: param.default for param in parameters}
    assert list(values) == [param.name for param in parameters]


@pytest.mark.parametrize(("name", "parameters"), FILES)
def test_every_parameter_has_a_description_and_a_default_that_fits(
    name: str, parameters: list[Param]
) -> None:
    for param in parameters:
        assert param.description.endswith(".") and len(param.description) > 10, param.name
        assert param.problem(param.default) is None


def test_the_default_limits_make_a_control_loop() -> None:
    values = {param.name: param.default for param in executor_settings.PARAMETERS}
    settings = executor_settings.settings_from(values)
    assert settings.loop.period_ns == 33_333_333
    assert settings.loop.limits.upper[5] == 1.74533
