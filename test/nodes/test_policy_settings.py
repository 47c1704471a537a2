"""The policy node's parameters against a policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints.execution import EXECUTION
from vla_simd_ros.control.query_timing import Pacing, QueryPacing
from vla_simd_ros.nodes.parameters import ParameterError
from vla_simd_ros.nodes.policy_settings import PARAMETERS, checkpoint_named, load_options, settings_for
from vla_simd_ros.policies.base import CameraSpec, PolicySpec

CAMERA = CameraSpec(6, 8)
SPEC = PolicySpec("act", {"front": CAMERA, "wrist": CAMERA}, 6, 0, 6, chunk_size=20, n_action_steps=10)


def values(**changes: Any) -> dict[str, Any]:
    return {**{param.name: param.default for param in PARAMETERS}, **changes}


def test_defaults_fit_an_so101_policy() -> None:
    settings = settings_for(values(), SPEC)
    assert [(c.name, c.topic) for c in settings.cameras] == [
        ("front", "camera/front/image_raw"),
        ("wrist", "camera/wrist/image_raw"),
    ]
    assert settings.joints == settings.action_names
    assert (settings.window, settings.compressed) == (10, False)
    assert settings.state_units.to_policy(np.full(6, 0.25)) == pytest.approx([0.25] * 6)


def test_defaults_themselves_pass_the_checks() -> None:
    assert [param.problem(param.default) for param in PARAMETERS] == [None] * len(PARAMETERS)


def test_cameras_may_name_topics_in_any_order() -> None:
    settings = settings_for(values(cameras=" wrist = /hand/rgb , front"), SPEC)
    assert [(c.name, c.topic) for c in settings.cameras] == [
        ("front", "camera/front/image_raw"),
        ("wrist", "/hand/rgb"),
    ]


def test_lerobots_so101_units_are_converted() -> None:
    settings = settings_for(values(joint_units=["deg"] * 5 + ["range_0_100"]), SPEC)
    policy = settings.state_units.to_policy(np.array([np.pi / 2, 0, 0, 0, 0, 1.74533]))
    assert policy == pytest.approx([90, 0, 0, 0, 0, 100])
    assert settings.action_units.to_robot(policy) == pytest.approx([np.pi / 2, 0, 0, 0, 0, 1.74533])


def test_a_delay_to_inject() -> None:
    assert settings_for(values(), SPEC).inject_delay is None
    delay = settings_for(values(inject_delay="fixed:200"), SPEC).inject_delay
    assert delay is not None
    assert delay.draw(np.random.default_rng(0), 2).tolist() == [0.2, 0.2]


def test_queries_start_as_asked_and_else_as_the_checkpoint_says(tmp_path: Path) -> None:
    assert settings_for(values(), SPEC).pacing == Pacing(QueryPacing.CONTINUOUS)
    (tmp_path / EXECUTION).write_text(json.dumps({"query_pacing": "on_demand", "query_threshold": 4}))
    given = {"checkpoint": str(tmp_path)}
    assert settings_for(values(**given), SPEC).pacing == Pacing(QueryPacing.ON_DEMAND, 4)
    steady = values(**given, query_pacing="continuous")
    assert settings_for(steady, SPEC).pacing.kind is QueryPacing.CONTINUOUS
    assert settings_for(values(**given, query_threshold=0), SPEC).pacing == Pacing(QueryPacing.ON_DEMAND, 0)
    (tmp_path / EXECUTION).write_text(json.dumps({"query_pacing": "often"}))
    with pytest.raises(ParameterError, match=r"checkpoint: .*execution\.json: query_pacing is 'often'"):
        settings_for(values(**given), SPEC)


def test_columns_that_are_no_joints_keep_their_units() -> None:
    names = ["linear_x", "gripper"]
    spec = replace(SPEC, action_dim=2)
    settings = settings_for(values(action_names=names, joint_units=["range_0_100"]), spec)
    assert settings.action_units.to_robot(np.array([3.0, 0.0])) == pytest.approx([3.0, -0.174533])


def test_load_options() -> None:
    options = load_options(values(checkpoint="/tmp/c", threads=2, affinity=[0, 3]))
    engine = {"settings": "auto", "threads": 2, "affinity": (0, 3)}
    assert options == {"executor": "simd", "int8": "", **engine}
    options = load_options(values(checkpoint="/tmp/c", settings="default"))
    assert options == {"executor": "simd", "int8": "", "settings": "default"}
    with pytest.raises(ValueError, match=r"affinity=\(-1, 3\): expected 0 to"):
        load_options(values(checkpoint="/tmp/c", affinity=[-1, 3]))


def test_groups_in_int8_or_all_of_them() -> None:
    assert load_options(values(checkpoint="/tmp/c", int8="encoder.ffn"))["int8"] == "encoder.ffn"
    assert load_options(values(checkpoint="/tmp/c", precision="int8"))["int8"] == "all"
    with pytest.raises(ValueError, match="precision is int8 and int8 is 'head', expected one of the two"):
        load_options(values(checkpoint="/tmp/c", precision="int8", int8="head"))
    with pytest.raises(ParameterError, match="expected the folder of a checkpoint"):
        checkpoint_named(values())


@pytest.mark.parametrize(
    ("changes", "spec", "words"),
    [
        ({"cameras": "front"}, {}, r"cameras: got \['front'\], the checkpoint has \['front', 'wrist'\]"),
        ({"cameras": "front, top"}, {}, "the checkpoint has"),
        ({"cameras": "front, front=/x, wrist"}, {}, "'front' is named twice"),
        ({}, {"cameras": {}}, r"cameras: got \[\], the checkpoint has \[\]"),
        ({"joints": ["a", "b"]}, {}, r"joints: got 2 names \['a', 'b'\], the checkpoint's state has 6"),
        ({"joints": ["a"] * 6}, {}, "expected different names"),
        ({}, {"action_dim": 7}, "expected 7 different names"),
        ({"action_names": ["a"] * 6}, {}, "expected 6 different names"),
        ({"window": 21}, {}, "window: got 21, expected at most the chunk size, 20"),
        ({"joint_units": ["deg", "rad"]}, {}, "joint_units: got 2 values"),
        ({"joint_units": ["range_0_100"], "joint_lower": [2.0]}, {}, "joint_units: .* needs a finite range"),
        ({}, {"env_state_dim": 3}, "observation.environment_state of 3 values"),
        ({"inject_delay": "slow"}, {}, "inject_delay: 'slow' is no distribution of delays, expected fixed"),
    ],
)
def test_what_does_not_fit_the_policy_is_named(
    changes: dict[str, Any], spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        settings_for(values(**changes), replace(SPEC, **spec))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("threads", -1, "threads: got -1, expected 0 to 1024"),
        ("threads", 2.5, "threads: got 2.5, expected int"),
        ("threads", True, "expected int"),
        ("step_period", 0.0, "step_period: got 0.0, expected above 0 and at most 10.0"),
        ("step_period", "fast", "expected float"),
        ("joint_units", ["turns"], "joint_units: got 'turns', expected one of rad, deg"),
        ("joint_units", [], r"joint_units: got \[\], expected a list of str"),
        ("joint_units", "deg", "expected a list of str"),
        ("image_transport", "theora", "expected one of raw, compressed"),
        ("window", None, "window: got None, expected int"),
        ("joint_lower", [float("nan")], r"joint_lower: got nan, expected a number"),
        ("camera_timeout", float("inf"), "camera_timeout: got inf, expected above 0 and at most 1000000.0"),
    ],
)
def test_values_of_a_wrong_kind_are_named(name: str, value: Any, words: str | None) -> None:
    import re

    problem = next(param for param in PARAMETERS if param.name == name).problem(value)
    assert problem is not None
    assert words is None or re.search(words, problem)


def test_a_whole_number_is_a_float_too() -> None:
    assert next(param for param in PARAMETERS if param.name == "sync_slop").problem(1) is None
