from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CAMERAS, random_inputs, with_config

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera
from vla_simd_ros.executors import reference_executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.fidelity.observations import random_observations
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.evaluate import evaluate
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import Policy, Prefix
from vla_simd_ros.policies.smolvla import SmolVlaPolicy

Open = Callable[..., Checkpoint]
TOKENS = 3
ONE = CAMERAS[:1]


def values(policy: SmolVlaPolicy, seed: int = 0, **inputs: Array) -> dict[str, Array]:
    """What the first of four steps gives, by tensor."""
    graph = policy.build(TOKENS)
    rng = np.random.default_rng(seed)
    sample = rng.normal(size=policy.solver.sample_shape).astype(np.float32)
    given = {**random_inputs(policy.spec, TOKENS, seed), **policy.solver.steps(4)[0], "sample": sample}
    given["token_ids"] = rng.integers(8, 600, TOKENS).astype(np.int32)
    found = run_graph(graph, {**given, **inputs})
    return {tensor.name: value for tensor, value in found.items()} | {
        name: found[tensor] for name, tensor in graph.outputs.items()
    }


@pytest.fixture(scope="module")
def compiled(checkpoint: Open) -> CompiledPolicy:
    return compile_graph(SmolVlaPolicy(checkpoint("smolvla")).build(TOKENS), FoldCache())


def families(ops: tuple[Op, ...]) -> set[str]:
    return {op.block.split(".")[0] for op in ops}


def test_what_it_takes_and_gives(checkpoint: Open) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla", state_dim=7, action_dim=4))
    spec = policy.spec
    assert {name: (c.height, c.width) for name, c in spec.cameras.items()} == {
        "front": (40, 56),
        "wrist": (33, 47),
    }
    assert (spec.state_dim, spec.action_dim, spec.chunk_size, spec.max_instruction_tokens) == (7, 4, 5, 8)
    assert spec.takes_prefix and spec.uses_instruction
    assert policy.solver.sample_shape == (5, 8) and policy.solver.default_steps == 3
    assert values(policy)["action"].shape == (5, 4)


@pytest.mark.parametrize("tokens", [None, 0, 9])
def test_instructions_of_other_lengths_are_refused(checkpoint: Open, tokens: int | None) -> None:
    with pytest.raises(GraphError, match=rf"an instruction of {tokens} tokens, expected 1 to 8"):
        SmolVlaPolicy(checkpoint("smolvla")).build(tokens)


def test_every_part_lives_as_long_as_what_it_depends_on(compiled: CompiledPolicy) -> None:
    programs = {lifetime: program.ops for lifetime, program in compiled.programs.items()}
    assert families(programs[Lifetime.EPISODE]) == {"text"}
    query = {"preprocess", "vision", "connector", "state", "prefix", "expert", "solver"}
    assert families(programs[Lifetime.QUERY]) <= query
    assert {"vision", "connector", "state", "prefix"} <= families(programs[Lifetime.QUERY])
    assert families(programs[Lifetime.STEP]) == {"embed", "expert", "head", "solver", "postprocess"}


def test_the_expert_s_view_of_the_prefix_is_made_once_per_query(compiled: CompiledPolicy) -> None:
    query = [op.output.name for op in compiled.programs[Lifetime.QUERY].ops if op.block.startswith("expert")]
    assert len(query) == 2 * 2
    for index in (1, 3):
        assert {f"expert.{index}.cross_attn.k", f"expert.{index}.cross_attn.v"} <= set(query)
    step = compiled.programs[Lifetime.STEP]
    attentions = [op for op in step.ops if op.kind == "attention"]
    assert [op.output.name for op in attentions] == [
        f"expert.{i}.{'cross' if i % 2 else 'self'}_attn.attention" for i in range(4)
    ]
    for op in attentions[1::2]:
        key, value = op.inputs[1], op.inputs[2]
        assert key is not None and value is not None
        assert key.lifetime is value.lifetime is Lifetime.QUERY


def test_nothing_of_the_last_prefix_layer_but_keys_and_values_is_computed(compiled: CompiledPolicy) -> None:
    last = [op for op in compiled.programs[Lifetime.QUERY].ops if op.block == "prefix.3"]
    assert {op.kind for op in last} <= {"rms_norm", "linear", "slice", "rotary"}
    assert not [op for op in last if op.kind == "attention"]


def test_a_query_reads_the_prefix_once_and_steps_repeat_the_expert(
    checkpoint: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: Counter[str] = Counter()

    def counted(op: Op, operands: Any, dtype: Any) -> Array:
        ran[op.output.name] += 1
        return evaluate(op, operands, dtype)

    whole = checkpoint("smolvla")
    policy = Policy(whole, ReferenceExecutor(), seed=0)
    policy.set_instruction("put the tape")
    monkeypatch.setattr(reference_executor, "evaluate", counted)
    policy.query(random_observations(whole, 1, 0)[0], num_steps=7)
    once = [name for name in ran if name.startswith(("vision", "connector", "prefix", "state"))]
    assert len(once) > 50 and {ran[name] for name in once} == {1}
    assert {ran[f"expert.{i}.cross_attn.{part}"] for i in (1, 3) for part in "kv"} == {1}
    assert {ran[f"expert.{i}.linear2.sum"] for i in range(4)} == {7}
    assert not [name for name in ran if name.startswith("text")]


@pytest.mark.parametrize("name", ["image.front", "image.wrist", "state", "token_ids", "sample"])
def test_everything_that_is_observed_matters(checkpoint: Open, name: str) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla"))
    other = random_inputs(policy.spec, TOKENS, seed=1)
    other["token_ids"] = np.array([300, 20, 31], np.int32)
    other["sample"] = np.full(policy.solver.sample_shape, 0.5, np.float32)
    first = values(policy, prefix_weights=np.zeros((5, 1), np.float32))["action"]
    second = values(policy, prefix_weights=np.zeros((5, 1), np.float32), **{name: other[name]})["action"]
    assert np.abs(first - second).max() > 1e-3 * np.abs(first).max()


def test_a_step_without_prefix_follows_the_velocity(checkpoint: Open) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla"))
    found = values(policy, prefix_weights=np.zeros((5, 1), np.float32))
    plain = values(policy, guidance=np.full(1, 5, np.float32), prefix_weights=np.zeros((5, 1), np.float32))
    rng = np.random.default_rng(0)
    sample = rng.normal(size=(5, 8)).astype(np.float32)
    np.testing.assert_allclose(found["sample"], sample - found["head.velocity"] / 4, rtol=1e-14)
    np.testing.assert_array_equal(plain["sample"], found["sample"])


def test_a_prefix_draws_the_end_of_the_way_to_its_rows(checkpoint: Open) -> None:
    """With guidance g and weight w a row's end misses the previous chunk's by 1 - t g w of what it did."""
    whole = checkpoint("smolvla")
    policy = SmolVlaPolicy(whole)
    time, guidance = np.full(1, 0.5, np.float32), np.full(1, 2, np.float32)
    weights = np.array([1, 1, 0.5, 0.25, 0], np.float32)[:, None]
    found = values(policy, time=time, guidance=guidance, prefix_weights=weights)
    scale, offset = whole.unnormalizers["action"].affine()
    rows = random_inputs(policy.spec, TOKENS)["prefix"]
    target = np.pad((rows.astype(np.float64) - offset) / scale, ((0, 0), (0, 2)))
    sample = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    velocity = (sample - found["sample"]) * 4
    missed = target - (sample - 0.5 * found["head.velocity"])
    np.testing.assert_allclose(
        target - (sample - 0.5 * velocity), missed * (1 - 0.5 * 2 * weights), rtol=0, atol=1e-12
    )


def test_a_frozen_prefix_comes_back(checkpoint: Open) -> None:
    """Through the whole query: rows that are held end up near those of the previous chunk, others do not."""
    whole = checkpoint("smolvla")
    policy = Policy(whole, ReferenceExecutor(), seed=0)
    policy.set_instruction("put the tape")
    observation = random_observations(whole, 1, 0)[0]
    noise = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    free = policy.query(observation, noise=noise).actions
    rows = free[:3] + np.float32(0.5)
    held = policy.query(observation, noise=noise, prefix=Prefix(rows, frozen=2, schedule="ZEROS")).actions
    assert np.abs(held[:2] - rows[:2]).max() < 0.1
    assert np.abs(held[:2] - free[:2]).min() > 0.3
    blank = Prefix(rows, frozen=0, schedule="ZEROS")
    np.testing.assert_array_equal(policy.query(observation, noise=noise, prefix=blank).actions, free)


def test_cameras_that_are_empty_are_left_out(checkpoint: Open) -> None:
    """LeRobot shows the policy black images of them, which nothing attends to."""
    empty = Camera("empty_camera_0", 480, 640)
    policy = SmolVlaPolicy(checkpoint("smolvla", cameras=(*ONE, empty), settings={"empty_cameras": 1}))
    assert list(policy.spec.cameras) == ["front"]
    assert values(policy)["prefix.0.tokens"].shape == (4 + TOKENS + 1, 40)


def test_marks_around_images(checkpoint: Open) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla", cameras=ONE, settings={"add_image_special_tokens": True}))
    tokens = values(policy)["prefix.0.tokens"]
    assert tokens.shape == (2 + 4 + 1 + TOKENS + 1, 40)
    words = checkpoint("smolvla", cameras=ONE).tensors[
        "model.vlm_with_expert.vlm.model.text_model.embed_tokens.weight"
    ]
    np.testing.assert_array_equal(tokens[[0, 1, 6]], words[[4, 3, 4]].astype(np.float64))


def test_padding_of_the_prefix_changes_nothing(checkpoint: Open) -> None:
    """Padded rows are masked as keys everywhere, so none are made."""
    plain = checkpoint("smolvla")
    padded = with_config(plain, prefix_length=60, pad_language_to="max_length", use_cache=False)
    first, second = (values(SmolVlaPolicy(each))["action"] for each in (plain, padded))
    np.testing.assert_array_equal(first, second)


def test_every_layer_attends_to_itself_without_crossing(checkpoint: Open) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla", settings={"attention_mode": "self_attn"}))
    attentions = [
        op for op in policy.build(TOKENS).ops if op.block.startswith("expert") and op.kind == "attention"
    ]
    assert [op.output.name for op in attentions] == [f"expert.{i}.self_attn.attention" for i in range(4)]


def test_an_expert_of_fewer_layers_stands_beside_every_other_one(checkpoint: Open) -> None:
    settings = {"num_expert_layers": 2, "self_attn_every_n_layers": 4}
    policy = SmolVlaPolicy(checkpoint("smolvla", settings=settings))
    attentions = [
        op for op in policy.build(TOKENS).ops if op.block.startswith("expert") and op.kind == "attention"
    ]
    seen = [(op.output.name, op.inputs[1].shape[0] if op.inputs[1] else 0) for op in attentions]
    prefix = 2 * 4 + TOKENS + 1
    assert seen == [("expert.0.self_attn.attention", prefix + 5), ("expert.1.cross_attn.attention", prefix)]


def test_images_and_words_do_not_see_the_state(checkpoint: Open) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla"))
    state = np.ones((1, 6), np.float32)
    first, second = values(policy), values(policy, state=state)
    for name in ("prefix.3.self_attn.v", "prefix.3.self_attn.k.rotated"):
        np.testing.assert_array_equal(first[name][:-1], second[name][:-1])
        assert np.abs(first[name][-1] - second[name][-1]).max() > 1e-3


def test_rows_of_the_chunk_see_earlier_rows_only_where_they_attend_to_themselves(checkpoint: Open) -> None:
    policy = SmolVlaPolicy(checkpoint("smolvla"))
    sample = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    sample[3] += 1
    first, second = values(policy), values(policy, sample=sample)
    np.testing.assert_array_equal(first["head.velocity"][:3], second["head.velocity"][:3])
    assert (np.abs(first["head.velocity"] - second["head.velocity"])[3:].max(axis=1) > 1e-4).all()


def test_bfloat16_weights_are_float32_of_the_same_value(checkpoint: Open) -> None:
    stored, single = checkpoint("smolvla", dtype="bf16"), checkpoint("smolvla")
    name = "model.action_out_proj.weight"
    half, full = stored.tensors[name], single.tensors[name]
    assert half.dtype == np.float32 and 0 < np.abs(half - full).max() < 2**-8 * np.abs(full).max()
    first, second = (values(SmolVlaPolicy(each))["action"] for each in (stored, single))
    assert 0 < np.abs(first - second).max() < 0.2 * np.abs(second).max()


def test_instructions_of_different_lengths_share_their_weights(checkpoint: Open) -> None:
    policy, cache = SmolVlaPolicy(checkpoint("smolvla")), FoldCache()
    short, long = (compile_graph(policy.build(tokens), cache) for tokens in (2, 7))

    def weights(program: CompiledPolicy) -> dict[str, LazyArray]:
        ops = [op for part in program.programs.values() for op in part.ops]
        tensors: list[Tensor | None] = [op.inputs[1] for op in ops if op.kind in ("linear", "conv2d")]
        return {t.name: program.constants[t] for t in tensors if t is not None}

    one, other = weights(short), weights(long)
    assert one.keys() == other.keys()
    assert all(one[name] is other[name] for name in one)


def test_images_of_the_square_s_size_are_neither_scaled_nor_padded(checkpoint: Open) -> None:
    graph = SmolVlaPolicy(checkpoint("smolvla", cameras=(Camera("top", 32, 32),))).build(TOKENS)
    assert not [op for op in graph.ops if op.kind == "resize" or ".fitted" in op.output.name]


def test_without_a_size_images_stay_as_they_are(checkpoint: Open) -> None:
    whole = checkpoint("smolvla", cameras=(Camera("top", 16, 16),))
    policy = SmolVlaPolicy(with_config(whole, resize_imgs_with_padding=None))
    assert values(policy)["prefix.0.tokens"].shape == (1 + TOKENS + 1, 40)


def test_small_images_have_the_positions_of_their_coordinates(checkpoint: Open) -> None:
    """A patch of an image of half the size has every other position."""
    whole = checkpoint("smolvla", cameras=(Camera("top", 16, 16),))
    found = values(SmolVlaPolicy(with_config(whole, resize_imgs_with_padding=[16, 16])))
    table = whole.tensors["model.vlm_with_expert.vlm.model.vision_model.embeddings.position_embedding.weight"]
    expected = table[[0, 2, 8, 10]].astype(np.float64)
    positioned = found["vision.top.patches.positioned"].reshape(4, -1)
    np.testing.assert_allclose(
        positioned - found["vision.top.patches.patches"].reshape(4, -1), expected, atol=1e-14
    )


def test_cameras_have_the_names_that_the_robot_gives_them(checkpoint: Open) -> None:
    whole = checkpoint("smolvla", cameras=ONE)
    renames = {"observation.images.top": "observation.images.front"}
    renamed = dataclasses.replace(whole, processors=dataclasses.replace(whole.processors, rename_map=renames))
    spec = SmolVlaPolicy(renamed).spec
    assert list(spec.cameras) == ["top"] and spec.camera_features == {"top": "front"}
