from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis.options import Camera, OptionError, Options, apply_options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seed": -1}, "seed is -1, expected 0 or more"),
        ({"dtype": "int4"}, "dtype is 'int4', expected one of fp32, bf16, fp16"),
        ({"state_dim": -1}, "state-dim is -1, expected 0 or more"),
        ({"action_dim": 0}, "action-dim is 0, expected 1 or more"),
        ({"cameras": (Camera("a", 4, 4), Camera("a", 4, 4))}, "camera 'a' is named twice"),
        ({"cameras": (Camera("a", 0, 4),)}, "camera 'a': size is 0x4, expected positive numbers"),
    ],
)
def test_values_that_no_checkpoint_has(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        Options(**options)


def test_sizes_and_settings_are_written() -> None:
    config = {"layers": 1, "rate": 0.1, "nested": {"deep": 2}, "free": None, "flag": False}
    settings = {"rate": 1, "nested.deep": 3, "free": "x", "flag": True}
    apply_options(config, {"depth": "layers"}, "act", Options(sizes={"depth": 5}, settings=settings))

    assert config == {"layers": 5, "rate": 1, "nested": {"deep": 3}, "free": "x", "flag": True}


def test_settings_win_over_sizes() -> None:
    config = {"layers": 1}
    apply_options(config, {"depth": "layers"}, "act", Options(sizes={"depth": 5}, settings={"layers": 6}))

    assert config == {"layers": 6}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (Options(sizes={"env_layers": 1}), "act has no --env-layers"),
        (Options(settings={"nope": 1}), "config.json has no field 'nope'"),
        (Options(settings={"layers.deep": 1}), "config.json has no field 'layers.deep'"),
        (Options(settings={"layers": "many"}), "'layers' is 'many', expected a value like 1"),
        (Options(settings={"layers": True}), "'layers' is True, expected a value like 1"),
        (Options(settings={"layers": None}), "'layers' is None, expected a value like 1"),
        (Options(settings={"layers": 1.5}), "'layers' is 1.5, expected a value like 1"),
    ],
)
def test_what_the_policy_does_not_have(options: Options, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        apply_options({"layers": 1}, {}, "act", options)
