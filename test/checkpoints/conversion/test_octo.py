"""Published folders become folders that load, weight by weight where they belong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import published_octo as published
import pytest

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.checkpoints.conversion.flax_msgpack import read_flax_msgpack
from vla_simd_ros.checkpoints.conversion.octo import convert_octo
from vla_simd_ros.checkpoints.synthesis import OptionError
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.inference import Observation, Policy
from vla_simd_ros.policies.octo import OctoPolicy


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published.write(tmp_path_factory.mktemp("published") / "octo-small")


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("converted") / "octo"
    convert_octo(source, folder, "bridge")
    (folder / "tokenizer.json").write_text(json.dumps(t5_tokenizer(published.VOCABULARY)))
    return load_checkpoint(folder)


def test_every_parameter_is_somewhere(converted: Checkpoint) -> None:
    stored = dict(published.leaves(published.parameters()))
    assert len(converted.tensors) == len(stored)
    assert sum(t.size for t in converted.tensors.values()) == sum(p.size for p in stored.values())


def test_layouts(converted: Checkpoint) -> None:
    tree = published.parameters()
    model, head = tree["octo_transformer"], tree["heads_action"]["diffusion_model"]
    stem = model["observation_tokenizers_wrist"]["SmallStem16_0"]
    layer = model["BlockTransformer_0"]["Transformer_0"]["encoderblock_1"]
    attention = layer["MultiHeadDotProductAttention_0"]
    text = model["task_tokenizers_language"]["hf_model"]["encoder"]["block"]["0"]["layer"]["0"]
    tensor = converted.weights.tensor

    kernel = tensor("model.observation.wrist.stem.2.conv.weight")
    assert kernel[5, 3, 0, 2] == stem["StdConv_2"]["kernel"][0, 2, 3, 5]
    np.testing.assert_array_equal(
        tensor("model.observation.wrist.stem.1.norm.weight"), stem["GroupNorm_1"]["scale"]
    )
    # Output 17 of the query is value 5 of head 1.
    query = tensor("model.transformer.layers.1.self_attn.q.weight")
    np.testing.assert_array_equal(query[17], attention["query"]["kernel"][:, 1, 5])
    assert tensor("model.transformer.layers.1.self_attn.q.bias")[17] == attention["query"]["bias"][1, 5]
    out = tensor("model.transformer.layers.1.self_attn.out.weight")
    np.testing.assert_array_equal(out[:, 17], attention["out"]["kernel"][1, 5])
    np.testing.assert_array_equal(
        tensor("model.transformer.layers.1.linear2.weight"), layer["MlpBlock_0"]["Dense_1"]["kernel"].T
    )
    np.testing.assert_array_equal(
        tensor("model.readout.action.positions"), model["readout_action_pos_embedding"][0]
    )
    np.testing.assert_array_equal(
        tensor("model.text.model.encoder.block.0.layer.0.SelfAttention.o.weight"),
        text["SelfAttention"]["o"]["kernel"].T,
    )
    np.testing.assert_array_equal(tensor("model.head.time.frequencies"), head["time_preprocess"]["kernel"])
    np.testing.assert_array_equal(
        tensor("model.head.blocks.1.linear1.weight"),
        head["reverse_network"]["MLPResNetBlock_1"]["Dense_0"]["kernel"].T,
    )


def test_the_policy_is_the_published_one(converted: Checkpoint) -> None:
    spec = OctoPolicy(converted).spec
    assert {name: (c.height, c.width) for name, c in spec.cameras.items()} == published.IMAGES
    assert (spec.chunk_size, spec.action_dim, spec.observation_steps) == (4, 7, 2)
    assert spec.max_instruction_tokens == published.TOKENS
    policy = Policy.load(converted.folder, executor="reference", seed=0)
    policy.set_instruction("open the drawer")
    images = {n: np.zeros((2, *size, 3), np.uint8) for n, size in published.IMAGES.items()}
    assert np.isfinite(policy.query(Observation(images)).actions).all()


def test_actions_have_the_units_of_the_data_set_but_for_masked_columns(converted: Checkpoint) -> None:
    action = published.statistics()["action"]
    scale, offset = converted.unnormalizers["action"].affine()
    np.testing.assert_array_equal(scale, np.array([*action["std"][:-1], 1], np.float32))
    np.testing.assert_array_equal(offset, np.array([*action["mean"][:-1], 0], np.float32))


def test_images_are_brought_to_minus_one_and_one(converted: Checkpoint) -> None:
    for normalizer in converted.normalizers.values():
        assert normalizer.offset.tolist() == [0.5] * 3 and normalizer.divisor.tolist() == [0.5] * 3


def test_bounds(tmp_path: Path) -> None:
    config = published.config()
    config["dataset_kwargs"] = {"oxe_kwargs": {"action_proprio_normalization_type": "bounds"}}
    statistics = published.statistics(width=6)
    convert_octo(published.write(tmp_path / "in", config=config, statistics=statistics), tmp_path / "out")
    checkpoint = load_checkpoint(tmp_path / "out")
    action = statistics["action"]
    low, high = (np.array([*action[name][:-1], edge]) for name, edge in (("p01", -1), ("p99", 1)))
    scale, offset = checkpoint.unnormalizers["action"].affine()
    np.testing.assert_allclose(scale, (high - low) / 2, rtol=1e-6)
    np.testing.assert_allclose(offset, (high + low) / 2, rtol=1e-6)
    assert checkpoint.config["max_action_dim"] == 7


def test_the_first_release(tmp_path: Path) -> None:
    config, example = published.config(), published.example()
    del config["model"]["repeat_task_tokens"], config["model"]["use_correct_attention"]
    head = config["model"]["heads"]["action"]["kwargs"]
    head["pred_horizon"] = head.pop("action_horizon")
    example["observation"]["pad_mask"] = example["observation"].pop("timestep_pad_mask")
    convert_octo(published.write(tmp_path / "in", config=config, example=example), tmp_path / "out", "kuka")
    made = load_checkpoint(tmp_path / "out").config
    assert not made["repeat_task_tokens"] and not made["use_correct_attention"]
    assert (made["chunk_size"], made["n_obs_steps"]) == (4, 2)


def test_stems_that_see_no_goal_and_imagenet_images(tmp_path: Path) -> None:
    config = published.config()
    for tokenizer in config["model"]["observation_tokenizers"].values():
        tokenizer["kwargs"]["task_stack_keys"] = []
        tokenizer["kwargs"]["encoder"]["kwargs"]["img_norm_type"] = "imagenet"
    source = published.write(tmp_path / "in", config=config, parameters=published.parameters(goal=False))
    convert_octo(source, tmp_path / "out", "kuka")
    checkpoint = load_checkpoint(tmp_path / "out")
    assert not checkpoint.config["sees_goal"]
    normalizer = next(iter(checkpoint.normalizers.values()))
    np.testing.assert_allclose(normalizer.divisor, [0.229, 0.224, 0.225], rtol=1e-6)


def test_the_newest_step_is_taken(source: Path, tmp_path: Path) -> None:
    folder = published.write(tmp_path / "in")
    later = folder / "1200" / "default"
    later.mkdir(parents=True)
    changed = published.parameters()
    changed["heads_action"]["diffusion_model"]["time_preprocess"]["kernel"][:] = 9
    (later / "checkpoint").write_bytes(published.packed(changed))
    convert_octo(folder, tmp_path / "out", "bridge")
    assert (load_checkpoint(tmp_path / "out").weights.tensor("model.head.time.frequencies") == 9).all()


def test_the_command(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "octo"
    assert main(["convert", "octo", str(source), str(out), "--dataset", "kuka"]) == 0
    assert f"{out}: octo of 0.2 M parameters" in capsys.readouterr().out
    assert main(["convert", "octo", str(source), str(tmp_path / "other")]) == 2
    assert "name one of its data sets: bridge, kuka" in capsys.readouterr().err


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, leaf = path.split("/")
    for parent in parents:
        tree = tree[parent]
    tree[leaf] = value


CAMERA = "model/observation_tokenizers/primary"
HEAD = "model/heads/action"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (f"{CAMERA}/name", "LowdimObsTokenizer", "primary is a LowdimObsTokenizer, expected ImageTokenizer"),
        (f"{CAMERA}/kwargs/obs_stack_keys", ["image_.*"], "obs_stack_keys is .* expected"),
        (f"{CAMERA}/kwargs/task_film_keys", ["language_instruction"], "task_film_keys is .* expected"),
        (f"{CAMERA}/kwargs/use_token_learner", True, "use_token_learner is True, expected False"),
        (f"{CAMERA}/kwargs/encoder/name", "ViTResnet", "encoder is ViTResnet, expected a SmallStem"),
        (f"{CAMERA}/kwargs/encoder/kwargs", {"img_norm_type": "imagenet"}, "img_norm_type is .* for all"),
        (f"{HEAD}/name", "MSEActionHead", "is a MSEActionHead, expected DiffusionActionHead"),
        (f"{HEAD}/kwargs/use_map", True, "use_map is True, expected False"),
        ("model/readouts", {"action": 1, "value": 1}, "readouts are .* expected action alone"),
        ("model/task_tokenizers", {}, "task_tokenizers are .* expected language alone"),
        ("model/transformer_kwargs/add_position_embedding", True, "add_position_embedding is True"),
        ("model/max_horizon", "ten", "max_horizon"),
    ],
)
def test_networks_of_another_kind(tmp_path: Path, path: str, value: Any, message: str) -> None:
    config = copy.deepcopy(published.config())
    _set(config, path, value)
    source = published.write(tmp_path / "in", config=config)
    with pytest.raises(CheckpointError, match=message):
        convert_octo(source, tmp_path / "out", "bridge")
    assert not (tmp_path / "out").exists()


def test_a_camera_that_the_data_did_not_have(tmp_path: Path) -> None:
    tree, example = published.parameters(), published.example()
    for name in [name for name in tree["octo_transformer"] if "wrist" in name]:
        del tree["octo_transformer"][name]
    del example["observation"]["image_wrist"]
    source = published.write(tmp_path / "in", parameters=tree, example=example)
    convert_octo(source, tmp_path / "out", "kuka")
    assert list(load_checkpoint(tmp_path / "out").cameras) == ["primary"]


def _without_images(source: Path) -> None:
    example = published.example()
    example["observation"] = {"timestep_pad_mask": example["observation"]["timestep_pad_mask"]}
    (source / "example_batch.msgpack").write_bytes(published.packed(example))


def _without_mask(source: Path) -> None:
    example = published.example()
    del example["observation"]["timestep_pad_mask"]
    (source / "example_batch.msgpack").write_bytes(published.packed(example))


def _with_unknown(source: Path) -> None:
    tree = published.parameters()
    tree["heads_value"] = {"kernel": np.zeros(2, np.float32)}
    (source / "300" / "default" / "checkpoint").write_bytes(published.packed(tree))


def _with_text(source: Path) -> None:
    tree = published.parameters()
    tree["heads_action"]["diffusion_model"]["time_preprocess"]["kernel"] = "placeholder://kernel"
    (source / "300" / "default" / "checkpoint").write_bytes(published.packed(tree))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: (s / "300" / "default" / "checkpoint").unlink(), "has no <step>/default/checkpoint"),
        (lambda s: (s / "example_batch.msgpack").unlink(), "example_batch.msgpack: no such file"),
        (lambda s: (s / "example_batch.msgpack").write_bytes(b"\xc1"), "not a MessagePack file of Flax"),
        (_without_images, "none of observation_tokenizers has an image"),
        (_without_mask, "has no observation/timestep_pad_mask"),
        (_with_unknown, "parameter 'heads_value/kernel' is none of an Octo"),
        (_with_text, "time_preprocess/kernel' is str .* expected an array"),
    ],
)
def test_folders_that_are_not_whole(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    source = published.write(tmp_path / "in")
    change(source)
    with pytest.raises(CheckpointError, match=message):
        convert_octo(source, tmp_path / "out", "bridge")


@pytest.mark.parametrize(
    ("statistics", "dataset", "message"),
    [
        ({"a": {}, "b": {}}, "c", "'c' is not among its data sets: a, b"),
        ({"a": {}}, "", "'a'.*action"),
        (published.statistics(), "bridge", "has the statistics of one data set"),
        ({"action": {"mean": [0.0, 0.0], "std": [1.0]}}, "", "other lengths than 'mean'"),
    ],
)
def test_statistics(tmp_path: Path, statistics: dict[str, Any], dataset: str, message: str) -> None:
    source = published.write(tmp_path / "in", statistics=statistics)
    with pytest.raises(CheckpointError, match=message):
        convert_octo(source, tmp_path / "out", dataset)


def test_targets_in_use(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OptionError, match="exists already"):
        convert_octo(source, tmp_path, "bridge")


def test_bfloat16_parameters(tmp_path: Path) -> None:
    upper = np.array([0x3FC0, 0xC000], np.uint16)  # 1.5 and -2
    content = msgpack.packb(((2,), "bfloat16", upper.tobytes()))
    (tmp_path / "file").write_bytes(msgpack.packb({"a": {"b": msgpack.ExtType(1, content)}}))
    (values,) = read_flax_msgpack(tmp_path / "file").values()
    np.testing.assert_array_equal(values, np.array([1.5, -2], np.float32))
