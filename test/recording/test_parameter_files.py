"""Parameter files read without ROS."""

from __future__ import annotations

from pathlib import Path

import pytest

from vla_simd_ros.nodes.param import Param, ParameterError
from vla_simd_ros.recording.parameter_files import ParameterFileError, parameters_from

SPECS = [Param("rate", 30.0, "A rate.", positive=True), Param("name", "x", "A name.")]


def values(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    return parameters_from(path, "policy_node", SPECS)


def test_without_a_file_there_are_defaults() -> None:
    assert parameters_from(None, "policy_node", SPECS) == {"rate": 30.0, "name": "x"}


def test_the_node_s_own_section_comes_last(tmp_path: Path) -> None:
    text = """
policy_node: {ros__parameters: {rate: 10}}
/**: {ros__parameters: {rate: 20, name: all, use_sim_time: true}}
other: {ros__parameters: {rate: 5}}
"""
    assert values(tmp_path, text) == {"rate": 10.0, "name": "all"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "no YAML"),
        ("just words", "expected sections such as 'policy_node'"),
        ("other: {ros__parameters: {}}", r"has the sections other, expected '/\*\*' or 'policy_node'"),
        ("policy_node: {rate: 3}", "section 'policy_node': expected ros__parameters"),
        ("policy_node: {ros__parameters: {speed: 3}}", "policy_node has no parameter speed"),
    ],
)
def test_what_is_no_parameter_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ParameterFileError, match=words):
        values(tmp_path, text)


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"rate: got -1, expected above 0"):
        values(tmp_path, "policy_node: {ros__parameters: {rate: -1}}")
