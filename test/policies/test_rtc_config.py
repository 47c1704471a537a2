from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.inference import Policy, Prefix
from vla_simd_ros.policies.base import Guidance
from vla_simd_ros.policies.rtc_config import read_guidance
from vla_simd_ros.policies.smolvla import SmolVlaPolicy

Open = Callable[..., Checkpoint]
GIVEN = {
    "enabled": True,
    "prefix_attention_schedule": "EXP",
    "max_guidance_weight": 2,
    "execution_horizon": 3,
    "debug": False,
    "debug_maxlen": 100,
}


def guidance(checkpoint: Checkpoint, rtc_config: Any) -> Guidance:
    return SmolVlaPolicy(with_config(checkpoint, rtc_config=rtc_config)).solver.guidance


def test_without_it_chunks_continue_as_lerobot_s_defaults_say(checkpoint: Open) -> None:
    usual = Guidance("LINEAR", 10, 10.0, enabled=True)
    whole = checkpoint("smolvla")
    assert "rtc_config" not in whole.config and read_guidance(whole) == usual
    assert guidance(whole, None) == guidance(whole, {}) == usual


def test_what_it_says_is_the_policy_s_own(checkpoint: Open) -> None:
    whole = checkpoint("smolvla")
    assert guidance(whole, GIVEN) == Guidance("EXP", 3, 2.0, enabled=True)
    assert guidance(whole, {"execution_horizon": 7}) == Guidance("LINEAR", 7, 10.0, enabled=True)
    assert guidance(whole, {**GIVEN, "enabled": False}) == Guidance("EXP", 3, 2.0, enabled=False)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("enabled", "yes", "'enabled' is a string ('yes'), expected true or false"),
        ("prefix_attention_schedule", "exp", "is 'exp', expected one of LINEAR, EXP, ONES, ZEROS"),
        ("prefix_attention_schedule", 3, "'prefix_attention_schedule' is an integer (3), expected a string"),
        ("execution_horizon", 0, "execution_horizon of rtc_config is 0, expected 1 or more"),
        ("execution_horizon", -4, "execution_horizon of rtc_config is -4, expected 1 or more"),
        ("execution_horizon", 2.5, "'execution_horizon' is a number (2.5), expected an integer"),
        ("execution_horizon", True, "'execution_horizon' is true, expected an integer"),
        ("max_guidance_weight", 0, "max_guidance_weight of rtc_config is 0, expected a number above 0"),
        ("max_guidance_weight", -1.5, "max_guidance_weight of rtc_config is -1.5, expected"),
        ("max_guidance_weight", float("inf"), "'max_guidance_weight' is inf, expected a finite number"),
        ("max_guidance_weight", [1], "'max_guidance_weight' is a list, expected a number"),
    ],
)
def test_values_that_make_no_sense_are_named(checkpoint: Open, field: str, value: Any, message: str) -> None:
    whole = checkpoint("smolvla")
    with pytest.raises(CheckpointError) as error:
        guidance(whole, {**GIVEN, field: value})
    assert str(whole.folder / "config.json") in str(error.value) and "rtc_config" in str(error.value)
    assert message in str(error.value)


def test_it_is_an_object(checkpoint: Open) -> None:
    with pytest.raises(CheckpointError, match="'rtc_config' is true, expected an object"):
        guidance(checkpoint("smolvla"), True)


def test_queries_go_on_by_it_unless_they_say_otherwise(checkpoint: Open) -> None:
    """The same bits as when all of it comes with the query to a checkpoint that says nothing."""
    plain = checkpoint("smolvla")
    noise = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    rows = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)

    def actions(whole: Checkpoint, *prefixes: Prefix) -> list[np.ndarray]:
        policy = Policy(whole, ReferenceExecutor())
        policy.set_instruction("put the tape")
        seen = policy.blank_observation()
        return [policy.query(seen, noise=noise, prefix=prefix).actions for prefix in prefixes]

    own, other = actions(
        with_config(plain, rtc_config=GIVEN), Prefix(rows, 1), Prefix(rows, 1, 4, "ONES", 5.0)
    )
    told, told_other, usual = actions(
        plain, Prefix(rows, 1, 3, "EXP", 2.0), Prefix(rows, 1, 4, "ONES", 5.0), Prefix(rows, 1)
    )
    np.testing.assert_array_equal(own, told)
    np.testing.assert_array_equal(other, told_other)
    assert np.abs(own - usual).max() > 1e-3


def test_a_folder_is_refused_when_it_is_loaded(checkpoint: Open, tmp_path: Path) -> None:
    whole = checkpoint("smolvla")
    for file in whole.folder.iterdir():
        if file.name != "config.json":
            (tmp_path / file.name).symlink_to(file)
    changed = {**whole.config, "rtc_config": {"execution_horizon": 0}}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match="execution_horizon of rtc_config is 0, expected 1 or more"):
        Policy.load(tmp_path, threads=1)
