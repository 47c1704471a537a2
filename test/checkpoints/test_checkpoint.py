from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vla_simd_ros.checkpoints import CheckpointError, FeatureKind, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.checkpoints.synthesis.byte_vocabulary import byte_tokenizer
from vla_simd_ros.inference import InputError, Observation, Policy
from vla_simd_ros.policies.registry import define_policy

Edit = Callable[[str, Callable[[Any], None]], None]


def test_opens_a_folder(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)

    assert checkpoint.type == "act"
    assert checkpoint.cameras == {}
    assert checkpoint.features_in["observation.state"].kind is FeatureKind.STATE
    assert checkpoint.features_out["action"].shape == (6,)
    assert checkpoint.weights.tensor("model.action_head.weight", (6, 16)).dtype == np.float32
    assert "model.action_head.weight" in checkpoint.tensors


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent: no such folder"):
        load_checkpoint(tmp_path / "absent")


def test_a_file_instead_of_a_folder(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config.json: is a file, expected a folder"):
        load_checkpoint(folder / "config.json")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()

    with pytest.raises(CheckpointError, match=f"{name}: no such file"):
        load_checkpoint(folder)


def test_weights_that_another_folder_has(folder: Path, tmp_path: Path) -> None:
    whole, part = load_file(folder / "model.safetensors"), tmp_path / "part"
    shutil.copytree(folder, part)
    own = {name: values for name, values in whole.items() if name.startswith("model.action_head.")}
    save_file({name: values + 1 for name, values in own.items()}, part / "model.safetensors")
    config = json.loads((part / "config.json").read_text())
    (part / "config.json").write_text(json.dumps({**config, "shared_weights": f"../{folder.name}"}))

    tensors = load_checkpoint(part).tensors
    assert set(tensors) == set(whole)
    for name, values in whole.items():
        np.testing.assert_array_equal(tensors[name], values + 1 if name in own else values)
    (part / "config.json").write_text(json.dumps({**config, "shared_weights": "../nowhere"}))
    with pytest.raises(CheckpointError, match=r"nowhere/model.safetensors: no such file"):
        load_checkpoint(part)
    (part / "config.json").write_text(json.dumps({**config, "shared_weights": 3}))
    with pytest.raises(CheckpointError, match=r"shared_weights"):
        load_checkpoint(part)


def test_truncated_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(CheckpointError, match=r"model.safetensors: not a complete safetensors file"):
        load_checkpoint(folder)


def test_unknown_policy(folder: Path, edit: Edit) -> None:
    edit("config.json", lambda content: content.update(type="walker"))

    with pytest.raises(CheckpointError, match="policy type 'walker' is not supported, expected one of act"):
        define_policy(load_checkpoint(folder))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers(folder: Path, bad: float) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.action_head.weight"][1, 2] = bad
    save_file(weights, folder / "model.safetensors")

    with pytest.raises(CheckpointError, match=r"'model.action_head.weight' has 1 NaN or infinite.*\[1, 2\]"):
        Policy.load(folder, executor="reference")


def test_weights_of_another_shape(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.action_head.bias"] = np.zeros(7, np.float32)
    save_file(weights, folder / "model.safetensors")

    with pytest.raises(CheckpointError, match=r"'model.action_head.bias' has shape \[7\], expected \[6\]"):
        define_policy(load_checkpoint(folder)).build()


def test_options(folder: Path, edit: Edit) -> None:
    edit("config.json", lambda content: content.update(nothing=None, words="many"))
    checkpoint = load_checkpoint(folder)

    assert checkpoint.option("dim_model", int, 512) == 16
    assert checkpoint.option("absent", int, 512) == 512
    assert checkpoint.option("nothing", int, 512) == 512
    with pytest.raises(
        CheckpointError, match=r"config.json: 'words' is a string \('many'\), expected an integer"
    ):
        checkpoint.option("words", int, 512)
    with pytest.raises(CheckpointError, match=r"config.json: 'absent' is missing"):
        checkpoint.option("absent", int)


def test_no_tokenizer(folder: Path) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"no tokenizer.json, spiece.model, tokenizer.model or vocab.txt in .*act or .*text_encoder",
    ):
        load_checkpoint(folder).tokenizer()


def test_a_model_that_is_named_and_not_here_is_said(folder: Path, edit: Edit) -> None:
    edit("config.json", lambda content: content.update(vlm_model_name="someone/some-model"))

    with pytest.raises(
        CheckpointError, match=r"put those of 'someone/some-model' \(vlm_model_name of"
    ) as caught:
        load_checkpoint(folder).tokenizer()
    assert str(caught.value).endswith(f"into {folder}")


@pytest.mark.parametrize("inside", [True, False])
def test_the_tokenizer_of_a_model_s_own_folder(
    folder: Path, edit: Edit, tmp_path: Path, inside: bool
) -> None:
    place = folder / "vlm" if inside else tmp_path / "vlm"
    place.mkdir()
    (place / "tokenizer.json").write_text(json.dumps(byte_tokenizer(300)))
    name = "vlm" if inside else str(place)
    edit("config.json", lambda content: content.update(vlm_model_name=name))

    checkpoint = load_checkpoint(folder)
    assert checkpoint.named_folder("vlm_model_name") == place
    assert checkpoint.tokenizer().source == place / "tokenizer.json"
    assert checkpoint.named_folder("language_backbone") is None


def test_text_encoder_beside_the_weights(folder: Path) -> None:
    beside = folder / "text_encoder"
    beside.mkdir()
    (beside / "config.json").write_text('{"d_model": 8}')
    save_file({"shared.weight": np.ones((2, 8), np.float32)}, beside / "model.safetensors")

    config, weights = load_checkpoint(folder).text_encoder()
    assert config == {"d_model": 8}
    assert weights.tensor("shared.weight").shape == (2, 8)


def test_no_text_encoder_says_what_to_put_where(folder: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"put the text encoder's config.json and model.safetensors.*into"
    ):
        load_checkpoint(folder).text_encoder()


def test_path_as_text(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "with space")

    assert load_checkpoint(str(tmp_path / "with space")).type == "act"


def test_a_renamed_camera_goes_by_the_robots_name_and_changes_no_action(tmp_path: Path) -> None:
    folder = tmp_path / "act"
    sizes = {"dim_model": 32, "heads": 2, "feedforward": 32, "chunk_size": 4, "encoder_layers": 1}
    cameras = (Camera("front", 32, 32), Camera("wrist", 32, 32))
    make_checkpoint("act", folder, Options(cameras=cameras, sizes=sizes))
    frames = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    state = np.zeros(6, np.float32)
    with contextlib.closing(Policy.load(folder, executor="reference")) as policy:
        plain = policy.query(Observation({"front": frames[0], "wrist": frames[1]}, state)).actions

    preprocessor = json.loads((folder / "policy_preprocessor.json").read_text())
    step = next(s for s in preprocessor["steps"] if s["registry_name"] == "rename_observations_processor")
    step["config"]["rename_map"] = {"observation.images.top": "observation.images.front"}
    (folder / "policy_preprocessor.json").write_text(json.dumps(preprocessor))

    assert list(load_checkpoint(folder).cameras) == ["top", "wrist"]
    with contextlib.closing(Policy.load(folder, executor="reference")) as policy:
        assert policy.spec.camera_features == {"top": "front"}
        renamed = policy.query(Observation({"top": frames[0], "wrist": frames[1]}, state)).actions
        with pytest.raises(InputError, match="top"):
            policy.query(Observation({"front": frames[0], "wrist": frames[1]}, state))
    np.testing.assert_array_equal(renamed, plain)
