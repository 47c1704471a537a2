from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import random_inputs, with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.checkpoints.action_statistics import read_action_statistics
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.inference import Policy
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.openvla import OpenVlaPolicy
from vla_simd_ros.policies.registry import define_policy

Open = Callable[..., Checkpoint]
TEXT = "put the tape into the box"
TOKENS = 5
WORDS, BINS = 640, 32


@pytest.fixture(scope="module")
def policy(checkpoint: Open) -> OpenVlaPolicy:
    return OpenVlaPolicy(checkpoint("openvla"))


def observed(checkpoint: Checkpoint, seed: int = 0) -> Observation:
    (camera,) = checkpoint.cameras
    shape = (*checkpoint.cameras[camera].shape[1:], 3)
    return Observation({camera: np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)})


def test_what_it_takes_and_gives(policy: OpenVlaPolicy) -> None:
    spec = policy.spec
    assert list(spec.cameras) == ["image"]
    assert (spec.state_dim, spec.action_dim, spec.chunk_size) == (0, 7, 1)
    assert (spec.uses_instruction, spec.max_instruction_tokens) == (True, 40)
    assert policy.solver is None
    tokens = policy.action_tokens
    assert (tokens.vocabulary, tokens.count, tokens.stop) == (704, 7, frozenset())
    assert tokens.prefix_rows(TOKENS) == 16 + TOKENS


def test_the_answer_begins_behind_a_space_on_its_own(checkpoint: Open) -> None:
    opened = checkpoint("openvla")
    policy, tokenizer = OpenVlaPolicy(opened), opened.tokenizer()
    assert policy.action_tokens.first == tokenizer.token_id("▁")
    assert policy.action_tokens.first not in tokenizer.encode(TEXT)


def test_the_last_words_are_the_lowest_bins(checkpoint: Open) -> None:
    opened = checkpoint("openvla")
    tokens = OpenVlaPolicy(opened).action_tokens
    seen = read_action_statistics(opened.folder, opened.config)
    width = 2 / (BINS - 1)
    for token, centre in (
        (WORDS - 1, -1 + width / 2),
        (WORDS - 2, -1 + 3 * width / 2),
        (WORDS - BINS + 1, 1 - width / 2),
        # There is a border more than bins: the last two words share the highest one.
        (WORDS - BINS, 1 - width / 2),
    ):
        action = tokens.actions([token] * 7)
        assert (action.dtype, action.shape) == (np.float32, (1, 7))
        np.testing.assert_allclose(
            action[0, :6], seen.low[:6] + (centre + 1) / 2 * (seen.high - seen.low)[:6], atol=1e-6
        )
        assert action[0, 6] == np.float32(centre), "the gripper has no range"


@pytest.mark.parametrize("token", [0, WORDS - BINS - 1, WORDS, 703])
def test_a_token_outside_the_bins_is_no_action(policy: OpenVlaPolicy, token: int) -> None:
    with pytest.raises(
        DecodingError, match=f"token {token} at place 2 stands for no action, expected 608 to 639"
    ):
        policy.action_tokens.actions([639, 620, token, 639, 639, 639, 639])


def test_an_action_that_is_not_whole_is_none(policy: OpenVlaPolicy) -> None:
    assert policy.action_tokens.actions([620] * 6).shape == (0, 7)


@pytest.mark.parametrize("tokens", [None, 1, 41])
def test_prompts_of_another_length_are_refused(policy: OpenVlaPolicy, tokens: int | None) -> None:
    with pytest.raises(GraphError, match=f"got a prompt of {tokens} tokens, expected 2 to 40"):
        policy.build(tokens)


def test_images_are_seen_once_a_query_and_words_once_an_episode(policy: OpenVlaPolicy) -> None:
    programs = compile_graph(policy.build(TOKENS), FoldCache()).programs
    named = {lifetime: {op.output.name for op in program.ops} for lifetime, program in programs.items()}
    assert "embed.prompt" in named[Lifetime.EPISODE]
    for part in ("vision.0.1.linear2.sum", "vision.1.0.linear2.sum", "projector.linear3", "prefix.1.kept"):
        assert part in named[Lifetime.QUERY]
    assert not any(name.startswith(("vision.0.2.", "vision.1.1.")) for name in named[Lifetime.QUERY])
    assert {"layers.0.self_attn.attention", "head.scores"} <= named[Lifetime.STEP]
    assert not any(name.startswith(("vision", "prefix", "projector")) for name in named[Lifetime.STEP])
    assert not programs[Lifetime.STEP].uses


def scores(policy: OpenVlaPolicy, prompt: list[int], image: Array, tokens: list[int]) -> Array:
    """The scores of what follows each of ``tokens``, read in one pass, in float64."""
    rows = len(tokens)
    loaded = ReferenceExecutor(np.float64).load(compile_graph(policy.build(len(prompt), rows), FoldCache()))
    loaded.run(Lifetime.EPISODE, {"token_ids": np.array(prompt, np.int32)})
    loaded.run(Lifetime.QUERY, {"image.image": image})
    start = policy.action_tokens.prefix_rows(len(prompt))
    places = np.arange(start, start + rows, dtype=np.int32)
    step = {"step_ids": np.array(tokens, np.int32), "step_positions": places}
    return loaded.run(Lifetime.STEP, step)["scores"]


def test_the_image_comes_behind_the_first_token(checkpoint: Open) -> None:
    """Words behind the image are read as if they were tokens of the answer; the first one is not."""
    policy = OpenVlaPolicy(checkpoint("openvla"))
    image = random_inputs(policy.spec)["image.image"]
    whole = scores(policy, [1, 300, 310, 320], image, [290])
    np.testing.assert_allclose(whole[-1], scores(policy, [1, 300], image, [310, 320, 290])[-1], atol=1e-9)
    other = scores(policy, [2, 300, 310, 320], image, [290])
    assert np.abs(other - whole).max() > 1e-3


@pytest.mark.parametrize("decoder", ["autoregressive", "jacobi", "auto"])
def test_every_exact_decoder_gives_the_greedy_action(checkpoint: Open, decoder: str) -> None:
    opened = checkpoint("openvla")
    expected: list[int] = []
    definition = OpenVlaPolicy(opened)
    prompt, seen = opened.tokenizer().encode(TEXT), observed(opened)
    for _ in range(7):
        found = scores(definition, prompt, seen.images["image"], [definition.action_tokens.first, *expected])
        expected.append(int(found[-1].argmax()))
    policy = Policy(opened, SimdExecutor(threads=1))
    policy.set_decoder(decoder)
    policy.set_instruction(TEXT)
    query = policy.query(seen)
    assert query.decoded is not None
    assert list(query.decoded.tokens) == expected
    np.testing.assert_array_equal(query.actions, definition.action_tokens.actions(expected))
    assert not np.array_equal(policy.query(observed(opened, 1)).actions, query.actions)


def test_one_tower_has_a_projector_of_two_layers(checkpoint: Open) -> None:
    opened = checkpoint("openvla", settings={"use_fused_vision_backbone": False})
    names = {op.output.name for op in OpenVlaPolicy(opened).build(TOKENS).ops}
    assert "projector.linear2" in names
    assert "projector.linear3" not in names
    assert not any(name.startswith("vision.1.") for name in names)


def test_the_type_is_known(checkpoint: Open) -> None:
    assert isinstance(define_policy(checkpoint("openvla")), OpenVlaPolicy)


TEXT_CONFIG = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 704,
    "intermediate_size": 48, "num_hidden_layers": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"llm_backbone_id": "vicuna-v15-7b"}, "llm_backbone_id is 'vicuna-v15-7b', expected a Llama 2"),
        (
            {"n_action_bins": 640},
            r"n_action_bins is 640, expected 2 or more, and fewer than text_config.vocab_size",
        ),
        ({"n_action_bins": 1}, "n_action_bins is 1, expected 2 or more"),
        ({"pad_to_multiple_of": 704}, "n_action_bins is 32, expected"),
        ({"pad_to_multiple_of": 0}, "has 640 words and 641 tokens, expected 704 words"),
        (
            {"text_config": {**TEXT_CONFIG, "num_key_value_heads": 3}},
            "num_key_value_heads is 3, expected a divisor",
        ),
        (
            {"text_config": {**TEXT_CONFIG, "rope_scaling": {"type": "linear"}}},
            "rope_scaling is .*, expected none",
        ),
        ({"text_config": {**TEXT_CONFIG, "hidden_act": "gelu"}}, "hidden_act is 'gelu', expected 'silu'"),
        (
            {"text_config": {**TEXT_CONFIG, "vocab_size": 690}},
            "has 640 words and 641 tokens, expected 626 words",
        ),
        (
            {"text_config": {**TEXT_CONFIG, "vocab_size": 640}, "pad_to_multiple_of": 0},
            "has 640 words and 641 tokens, expected 640 words .* and at most 640 tokens",
        ),
        ({"timm_model_ids": ["a"]}, r"timm_model_ids is \['a'\], expected 2 vision towers"),
        (
            {"timm_model_args": {}, "timm_model_ids": ["a", "b"]},
            "timm_model_ids is 'a', expected one of vit_large",
        ),
        (
            {"timm_model_args": {"featurizer": {"num_heads": 0}}},
            "featurizer.num_heads is 0, expected 1 or more",
        ),
        (
            {"timm_model_args": {"featurizer": {"num_heads": 5}}},
            "width is 24, expected a multiple of 5 heads",
        ),
        ({"unnorm_key": "bridge"}, "unnorm_key is 'bridge', expected one of random"),
        ({"norm_stats": None}, "has no 'norm_stats'"),
    ],
    ids=str,
)  # fmt: skip
def test_folders_that_do_not_fit_are_refused(checkpoint: Open, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        OpenVlaPolicy(with_config(checkpoint("openvla"), **fields))


def test_a_vocabulary_of_another_model_is_refused(checkpoint: Open, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint("openvla").folder, folder)
    other = checkpoint("openvla", settings={"text_config.vocab_size": 660})
    shutil.copyfile(other.folder / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json: has 596 words and 597 tokens, expected 640 words"
    ):
        OpenVlaPolicy(load_checkpoint(folder))


def test_a_tensor_that_is_missing_or_of_another_shape_is_named(checkpoint: Open, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint("openvla").folder, folder)
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"]["projector.fc2.weight"]
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"tensor 'projector.fc2.weight' is missing"):
        OpenVlaPolicy(load_checkpoint(folder)).build(TOKENS)
    wide = with_config(checkpoint("openvla"), text_config={**TEXT_CONFIG, "intermediate_size": 64})
    with pytest.raises(CheckpointError, match=r"gate_proj.weight' has shape \[48, 32\], expected \[64, 32\]"):
        OpenVlaPolicy(wide).build(TOKENS)


def test_towers_must_have_as_many_patches_as_their_images(checkpoint: Open, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint("openvla").folder, folder)
    path = folder / "preprocessor_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "input_sizes": [[3, 16, 16], [3, 20, 20]]}))
    with pytest.raises(
        CheckpointError, match="image_sizes is 20, expected 16, 4 patches of 4 pixels as tower"
    ):
        OpenVlaPolicy(dataclasses.replace(load_checkpoint(folder)))
