"""MindDrive and ORION: what depends on what, what is computed when, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_checkpoints import DRIVING_SIZES, random_inputs, with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.partition import cut_points, partition
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.policies.base import PolicyDefinition
from vla_simd_ros.policies.registry import define_policy

Open = Callable[..., Checkpoint]

TOKENS = 5
LAYERS = DRIVING_SIZES["decoder_layers"]
PASSES = {"minddrive": ("decision", "action"), "orion": ("language",)}


@pytest.fixture(scope="module", params=PASSES)
def policy(request: pytest.FixtureRequest, checkpoint: Open) -> PolicyDefinition:
    return define_policy(checkpoint(request.param))


@pytest.fixture(scope="module")
def compiled(policy: PolicyDefinition) -> CompiledPolicy:
    return compile_graph(policy.build(TOKENS), FoldCache())


def inputs(policy: PolicyDefinition) -> dict[str, Array]:
    given = random_inputs(policy.spec, TOKENS)
    return {**given, "token_ids": given["token_ids"] % 600}


def action(policy: PolicyDefinition, given: dict[str, Array]) -> Array:
    graph = policy.build(TOKENS)
    return run_graph(graph, given)[graph.outputs["action"]]


def test_what_it_takes_and_gives(policy: PolicyDefinition) -> None:
    spec = policy.spec
    assert (spec.state_dim, spec.action_dim, spec.chunk_size, spec.max_instruction_tokens) == (8, 4, 5, 8)
    assert policy.solver is None and spec.uses_instruction
    assert action(policy, inputs(policy)).shape == (5, 4)


def test_every_input_matters(policy: PolicyDefinition) -> None:
    given = inputs(policy)
    plain = action(policy, given)
    changes = {
        "image.front": given["image.front"] ^ 255,
        "image.back": given["image.back"] ^ 255,
        "token_ids": (given["token_ids"] + 7) % 600,
        "state": given["state"] + np.float32(1) * (np.arange(8) >= 5),
    }
    for name, value in changes.items():
        other = action(policy, {**given, name: value.astype(given[name].dtype)})
        assert np.abs(other - plain).max() > 1e-4, name


def test_the_pose_in_the_map_only_moves_the_plan(policy: PolicyDefinition) -> None:
    given = inputs(policy)
    moved = given["state"].copy()
    moved[0, :3] += (40, -9, 0.5)
    expected = action(policy, given) + np.array([40, -9, 0.5, 0])
    np.testing.assert_allclose(action(policy, {**given, "state": moved}), expected, atol=1e-5)


def test_the_instruction_is_read_once(compiled: CompiledPolicy) -> None:
    episode, query = (compiled.programs[lifetime] for lifetime in (Lifetime.EPISODE, Lifetime.QUERY))
    assert episode.ops and not [op for op in query.ops if op.block.startswith("instruction")]
    # Of every layer of every pass a query reads keys and values.
    passes = PASSES["minddrive" if any(op.block == "decision.0" for op in query.ops) else "orion"]
    assert len(query.uses) == 2 * LAYERS * len(passes)
    assert {tensor.shape[0] for tensor in query.uses} == {TOKENS}


def test_the_heads_first_self_attention_is_folded(compiled: CompiledPolicy) -> None:
    heads = [op for op in compiled.programs[Lifetime.QUERY].ops if "self_attn" in op.output.name]
    blocks = {op.block for op in heads}
    for head in ("detection", "map", "scene_queries"):
        assert f"{head}.0" not in blocks
    assert blocks & {"detection.1", "scene_queries.1"}


def test_adapters_cost_a_query_nothing(checkpoint: Open) -> None:
    policy = define_policy(checkpoint("minddrive"))
    query = compile_graph(policy.build(TOKENS), FoldCache()).programs[Lifetime.QUERY]
    # Queries, keys and values are one product, then the output and three of the feed-forward layer.
    per_layer = [op for op in query.ops if op.block == "decision.1" and op.kind == "linear"]
    assert len(per_layer) == 5


def test_between_language_blocks_the_hidden_state_crosses(
    policy: PolicyDefinition, compiled: CompiledPolicy
) -> None:
    name = PASSES[policy.spec.type][-1]
    cut = partition(compiled, f"{name}.0")
    (hidden,) = cut.boundary
    assert hidden.block == f"{name}.0" and hidden.shape[1] == DRIVING_SIZES["dim_model"]
    wanted = [f"{part}.{index}" for part in PASSES[policy.spec.type] for index in range(LAYERS)]
    assert set(wanted) <= set(cut_points(compiled))


def test_within_the_decision_the_scene_crosses_too(checkpoint: Open) -> None:
    compiled = compile_graph(define_policy(checkpoint("minddrive")).build(TOKENS), FoldCache())
    boundary = {tensor.name for tensor in partition(compiled, "decision.1").boundary}
    assert boundary == {"decision.1.linear2.sum", "ego.token", "detection.1.tokens", "map.1.tokens"}


@pytest.mark.parametrize("tokens", [None, 0, 9])
def test_an_instruction_has_a_length(policy: PolicyDefinition, tokens: int | None) -> None:
    with pytest.raises(GraphError, match="expected 1 to 8"):
        policy.build(tokens)


def altered(checkpoint: Checkpoint, part: str, **fields: Any) -> Checkpoint:
    return with_config(checkpoint, **{part: {**checkpoint.config[part], **fields}})


@pytest.mark.parametrize(
    ("part", "fields", "complaint"),
    [
        ("vision_config", {"num_attention_heads": 5}, "multiple of num_attention_heads"),
        ("vision_config", {"num_attention_heads": 16}, "a multiple of 4 for each of 16 heads"),
        ("vision_config", {"window_size": 0}, "window_size is 0, expected 1 or more"),
        ("vision_config", {"patch_size": 7}, "multiples of patch_size"),
        ("query_config", {"num_queries": "many"}, "num_queries"),
        ("text_config", {"num_key_value_heads": 3}, "a divisor of num_attention_heads"),
        ("text_config", {"num_attention_heads": 32, "num_key_value_heads": 1}, "an even width"),
        ("text_config", {"rope_theta": -1.0}, "rope_theta is -1.0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    checkpoint: Open, part: str, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        define_policy(altered(checkpoint("orion"), part, **fields))


@pytest.mark.parametrize(
    ("policy_type", "fields", "complaint"),
    [
        ("orion", {"vision_config": None}, "vision_config"),
        ("orion", {"latent_dim": 0}, "latent_dim is 0"),
        ("orion", {"n_action_steps": 6}, "at most chunk_size"),
        ("minddrive", {"decisions": 0}, "decisions is 0"),
        ("minddrive", {"adapter_rank": 0}, "adapter_rank is 0"),
        ("minddrive", {"adapter_alpha": 0.0}, "a number greater than 0"),
    ],
)
def test_fields_that_do_not_fit_are_refused(
    checkpoint: Open, policy_type: str, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        define_policy(with_config(checkpoint(policy_type), **fields))
