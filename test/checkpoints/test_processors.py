from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vla_simd_ros.checkpoints import CheckpointError, load_checkpoint

Edit = Callable[[str, Callable[[Any], None]], None]
PRE, POST = "policy_preprocessor.json", "policy_postprocessor.json"
STATE_FILE = "policy_preprocessor_step_3_normalizer_processor.safetensors"


def step(content: Any, name: str) -> Any:
    return next(entry for entry in content["steps"] if entry["registry_name"] == name)


def normalizer(content: Any) -> Any:
    return step(content, "normalizer_processor")


def test_reads_statistics_of_inputs_and_outputs(folder: Path) -> None:
    stats = load_file(folder / STATE_FILE)
    checkpoint = load_checkpoint(folder)

    state = checkpoint.normalizers["observation.state"]
    np.testing.assert_array_equal(state.offset, stats["observation.state.mean"])
    np.testing.assert_array_equal(state.divisor, stats["observation.state.std"] + np.float32(1e-8))
    scale, offset = checkpoint.unnormalizers["action"].affine()
    np.testing.assert_array_equal(scale, stats["action.std"])
    np.testing.assert_array_equal(offset, stats["action.mean"])
    assert set(checkpoint.normalizers) == {"observation.state", "observation.environment_state"}


def test_follows_the_state_file(folder: Path, edit: Edit) -> None:
    (folder / STATE_FILE).rename(folder / "elsewhere.safetensors")
    edit(PRE, lambda content: normalizer(content).update(state_file="elsewhere.safetensors"))

    assert "observation.state" in load_checkpoint(folder).normalizers


def test_missing_state_file(folder: Path) -> None:
    (folder / STATE_FILE).unlink()

    with pytest.raises(CheckpointError, match=f"{STATE_FILE}: no such file"):
        load_checkpoint(folder)


def test_step_without_state_file(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: normalizer(content).pop("state_file"))

    with pytest.raises(CheckpointError, match=r"names no state_file.*'observation.state.mean' is missing"):
        load_checkpoint(folder)


def test_missing_statistic(folder: Path) -> None:
    stats = load_file(folder / STATE_FILE)
    del stats["observation.state.std"]
    save_file(stats, folder / STATE_FILE)

    with pytest.raises(CheckpointError, match=f"{STATE_FILE}: statistic 'observation.state.std' is missing"):
        load_checkpoint(folder)


def test_statistics_nobody_needs_are_not_read(folder: Path) -> None:
    stats = load_file(folder / STATE_FILE)
    stats["observation.other.mean"] = np.array([np.nan], np.float32)
    stats["observation.state.q01"] = np.array([np.nan], np.float32)
    stats["observation.state.count"] = np.array([9], np.int64)
    save_file(stats, folder / STATE_FILE)

    load_checkpoint(folder)


@pytest.mark.parametrize("file", [PRE, POST])
def test_unknown_step(folder: Path, edit: Edit, file: str) -> None:
    edit(file, lambda content: content["steps"].insert(1, {"registry_name": "delta_action", "config": {}}))

    with pytest.raises(
        CheckpointError, match=f"{file}: step 1: unknown step 'delta_action', expected one of"
    ):
        load_checkpoint(folder)


def test_two_normalizers(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: content["steps"].append(normalizer(content)))

    with pytest.raises(CheckpointError, match="step 4: a second 'normalizer_processor', expected one"):
        load_checkpoint(folder)


def test_no_normalizer(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: content["steps"].remove(normalizer(content)))

    with pytest.raises(CheckpointError, match="step 'normalizer_processor' is missing"):
        load_checkpoint(folder)


@pytest.mark.parametrize("file", [PRE, POST])
def test_one_processor_file_alone(folder: Path, file: str) -> None:
    (folder / file).unlink()

    with pytest.raises(CheckpointError, match=f"{file}: no such file"):
        load_checkpoint(folder)


def test_unknown_normalization_mode(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: normalizer(content)["config"]["norm_map"].update(STATE="ZSCORE"))

    with pytest.raises(
        CheckpointError, match="unknown normalization mode 'ZSCORE' for STATE, expected one of"
    ):
        load_checkpoint(folder)


def test_normalization_of_an_unknown_kind(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: normalizer(content)["config"]["norm_map"].update(SMELL="IDENTITY"))

    with pytest.raises(CheckpointError, match="unknown feature type 'SMELL'"):
        load_checkpoint(folder)


def test_a_kind_without_mode_is_left_alone(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: normalizer(content)["config"]["norm_map"].pop("ENV"))

    environment = load_checkpoint(folder).normalizers["observation.environment_state"]
    np.testing.assert_array_equal(environment.offset, np.zeros(3))
    np.testing.assert_array_equal(environment.divisor, np.ones(3))


def test_only_the_chosen_observations_are_normalized(folder: Path, edit: Edit) -> None:
    chosen = ["observation.environment_state"]
    edit(PRE, lambda content: normalizer(content)["config"].update(normalize_observation_keys=chosen))

    normalizers = load_checkpoint(folder).normalizers
    np.testing.assert_array_equal(normalizers["observation.state"].divisor, np.ones(6))
    assert not np.array_equal(normalizers["observation.environment_state"].divisor, np.ones(3))


def test_shapes_that_differ_from_the_configuration(folder: Path, edit: Edit) -> None:
    features = {"observation.state": {"type": "STATE", "shape": [7]}}
    edit(PRE, lambda content: normalizer(content)["config"].update(features=features))

    with pytest.raises(
        CheckpointError, match=r"feature 'observation.state' has shape \[7\], config.json has \[6\]"
    ):
        load_checkpoint(folder)


def test_camera_of_another_size(folder: Path, edit: Edit) -> None:
    def camera(height: int) -> dict[str, Any]:
        return {"observation.images.wrist": {"type": "VISUAL", "shape": [3, height, 640]}}

    edit("config.json", lambda content: content["input_features"].update(camera(480)))
    edit(PRE, lambda content: normalizer(content)["config"]["features"].update(camera(240)))

    with pytest.raises(
        CheckpointError,
        match=r"camera 'wrist' has shape \[3, 240, 640\], config.json has \[3, 480, 640\]",
    ):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"eps": -1e-8}, "'eps' is -1e-08, expected 0 or more"),
        ({"eps": float("nan")}, "'eps' is nan, expected a finite number"),
        ({"normalize_observation_keys": [["action"]]}, "has a list in it, expected strings"),
    ],
)
def test_settings_that_cannot_be(folder: Path, edit: Edit, change: Any, complaint: str) -> None:
    edit(PRE, lambda content: normalizer(content)["config"].update(change))

    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["../other/state.safetensors", "/etc/passwd", ".", ""])
def test_state_file_elsewhere(folder: Path, edit: Edit, name: str) -> None:
    edit(PRE, lambda content: normalizer(content).update(state_file=name))

    with pytest.raises(CheckpointError, match=f"'state_file' is '{name}', expected the name of a file"):
        load_checkpoint(folder)


def test_eps_of_another_type(folder: Path, edit: Edit) -> None:
    edit(PRE, lambda content: normalizer(content)["config"].update(eps="small"))

    with pytest.raises(CheckpointError, match=r"'eps' is a string \('small'\), expected a number"):
        load_checkpoint(folder)


def test_rename_map(folder: Path, edit: Edit) -> None:
    renames = {"observation.joints": "observation.state"}
    edit(
        PRE,
        lambda content: step(content, "rename_observations_processor")["config"].update(rename_map=renames),
    )

    assert load_checkpoint(folder).rename_map == renames


@pytest.mark.parametrize(
    ("renames", "complaint"),
    [
        ({"a": "x", "b": "x"}, "rename_map gives 'a', 'b' the same name 'x'"),
        ({"a": 1}, r"rename_map\['a'\] is an integer \(1\), expected a string"),
        (
            {"observation.state": "observation.environment_state"},
            "rename_map makes 'observation.state' the input 'observation.environment_state', "
            "and nothing is left for the input 'observation.state'",
        ),
    ],
)
def test_rename_map_that_cannot_be(folder: Path, edit: Edit, renames: Any, complaint: str) -> None:
    edit(
        PRE,
        lambda content: step(content, "rename_observations_processor")["config"].update(rename_map=renames),
    )

    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(folder)


def make_old(folder: Path) -> dict[str, Any]:
    """Rewrite ``folder`` as older versions saved it; returns the statistics."""
    stats = load_file(folder / STATE_FILE)
    weights = load_file(folder / "model.safetensors")
    for key, value in stats.items():
        feature, statistic = key.rsplit(".", 1)
        group = "unnormalize_outputs" if feature == "action" else "normalize_inputs"
        if statistic in ("mean", "std"):
            weights[f"{group}.buffer_{feature.replace('.', '_')}.{statistic}"] = value
    save_file(weights, folder / "model.safetensors")
    for path in folder.glob("policy_*"):
        path.unlink()
    return stats


def test_old_folder_keeps_statistics_among_the_weights(folder: Path) -> None:
    new = load_checkpoint(folder)
    make_old(folder)
    old = load_checkpoint(folder)

    for name, before in new.normalizers.items():
        after = old.normalizers[name]
        np.testing.assert_array_equal(before.offset, after.offset)
        np.testing.assert_array_equal(before.divisor, after.divisor)
    for before, after in zip(
        new.unnormalizers["action"].affine(), old.unnormalizers["action"].affine(), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert old.rename_map == {}


def test_old_folder_without_a_statistic(folder: Path) -> None:
    make_old(folder)
    weights = load_file(folder / "model.safetensors")
    del weights["unnormalize_outputs.buffer_action.std"]
    save_file(weights, folder / "model.safetensors")

    with pytest.raises(
        CheckpointError, match=r"has no policy_preprocessor.json\): statistic 'action.std' is missing"
    ):
        load_checkpoint(folder)


def test_old_folder_never_trained(folder: Path) -> None:
    """Statistics were infinite until data was seen."""
    make_old(folder)
    weights = load_file(folder / "model.safetensors")
    weights["normalize_inputs.buffer_observation_state.mean"][:] = np.inf
    save_file(weights, folder / "model.safetensors")

    with pytest.raises(
        CheckpointError, match=r"'normalize_inputs.buffer_observation_state.mean' has 6 NaN or infinite"
    ):
        load_checkpoint(folder)


def test_steps_of_another_type(folder: Path) -> None:
    (folder / PRE).write_text(json.dumps({"steps": "none"}))
    with pytest.raises(CheckpointError, match="'steps' is a string"):
        load_checkpoint(folder)
    (folder / PRE).write_text(json.dumps({"steps": ["normalizer_processor"]}))
    with pytest.raises(CheckpointError, match="step 0 is a string"):
        load_checkpoint(folder)


def test_the_step_that_ends_instructions_with_a_line_feed(folder: Path, edit: Edit) -> None:
    assert not load_checkpoint(folder).processors.new_line
    new_line = {"registry_name": "smolvla_new_line_processor", "config": {}}
    edit(PRE, lambda content: content["steps"].insert(2, new_line))
    assert load_checkpoint(folder).processors.new_line


@pytest.mark.parametrize(("kind", "expected"), [("act", False), ("smolvla", True)])
def test_folders_without_processor_files_leave_the_line_feed_to_the_policy(
    folder: Path, edit: Edit, kind: str, expected: bool
) -> None:
    for name in (PRE, POST):
        (folder / name).unlink()
    identity = dict.fromkeys(("STATE", "ENV", "ACTION"), "IDENTITY")
    edit("config.json", lambda content: content.update(type=kind, normalization_mapping=identity))
    assert load_checkpoint(folder).processors.new_line is expected
