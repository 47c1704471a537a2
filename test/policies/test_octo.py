from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_checkpoints import OCTO_SIZES, random_inputs, with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.checkpoints.synthesis import Camera
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime, Op
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.policies.octo import OctoPolicy
from vla_simd_ros.policies.octo_head import fourier_features
from vla_simd_ros.policies.octo_transformer import Layout

Open = Callable[..., Checkpoint]

TOKENS = 5
WIDTH, LAYERS = OCTO_SIZES["dim_model"], OCTO_SIZES["encoder_layers"]


def inputs(
    policy: OctoPolicy, tokens: int = TOKENS, seed: int = 0, valid: tuple[int, ...] = (1, 1)
) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    noise = {n: rng.standard_normal(policy.solver.sample_shape, np.float32) for n in ("sample", "step_noise")}
    step = policy.solver.steps(policy.solver.default_steps)[3]
    given = random_inputs(policy.spec, tokens, seed)
    if policy.spec.takes_observation_mask:
        given["observation_mask"] = np.array(valid, np.float32)[:, None]
    return {**given, **noise, **step}


def outputs(policy: OctoPolicy, given: dict[str, Array]) -> dict[str, Array]:
    graph = policy.build(len(given["token_ids"]))
    values = run_graph(graph, given)
    return {name: values[tensor] for name, tensor in graph.outputs.items()}


@pytest.fixture(scope="module")
def policy(checkpoint: Open) -> OctoPolicy:
    return OctoPolicy(checkpoint("octo", state_dim=0, action_dim=7))


@pytest.fixture(scope="module")
def compiled(policy: OctoPolicy) -> CompiledPolicy:
    return compile_graph(policy.build(TOKENS), FoldCache())


def ops(compiled: CompiledPolicy, lifetime: Lifetime, kind: str) -> list[Op]:
    return [op for op in compiled.programs[lifetime].ops if op.kind == kind]


def test_what_it_takes_and_gives(policy: OctoPolicy) -> None:
    spec = policy.spec
    assert (spec.state_dim, spec.action_dim, spec.chunk_size, spec.max_instruction_tokens) == (0, 7, 4, 8)
    assert spec.observation_steps == 2 and spec.takes_observation_mask
    made = outputs(policy, inputs(policy))
    assert made["action"].shape == made["sample"].shape == (4, 7)


def test_steps_run_the_head_alone(compiled: CompiledPolicy) -> None:
    """The sample's part of the input, two layers a block, the output; time's are a table made at load."""
    step = compiled.programs[Lifetime.STEP]
    assert {op.block for op in step.ops} == {"head", "solver", "postprocess"}
    assert len(ops(compiled, Lifetime.STEP, "linear")) == 1 + 2 * 2 + 1
    assert [tensor.shape for tensor in step.uses] == [(1, 64)]
    assert [op.block for op in compiled.programs[Lifetime.QUERY].ops][-1] == "head"


def test_a_query_reads_of_the_instruction_its_keys_values_and_rows(compiled: CompiledPolicy) -> None:
    episode, query = (compiled.programs[lifetime] for lifetime in (Lifetime.EPISODE, Lifetime.QUERY))
    assert {op.block for op in episode.ops} >= {"text.0", "text.1", "task", "transformer.0", "transformer.1"}
    assert len(ops(compiled, Lifetime.EPISODE, "attention")) == 2 + LAYERS - 1
    # Rows of the instruction within the observations, then keys and values of each layer.
    assert [tensor.shape for tensor in query.uses].count((8, WIDTH)) == len(query.uses) == 1 + 2 * LAYERS
    assert not [op for op in query.ops if op.block.startswith(("text", "task"))]


def test_only_the_last_readout_is_computed_in_the_last_layer(compiled: CompiledPolicy) -> None:
    last = [op for op in compiled.programs[Lifetime.QUERY].ops if op.block == f"transformer.{LAYERS - 1}"]
    rows = [op.output.shape[0] for op in last if op.kind in ("linear", "attention")]
    # Queries, attention, its projection, two layers; keys and values are of all rows.
    assert rows.count(1) == 5 and set(rows) == {1, 2 * (12 + 4 + 8 + 1)}


def test_the_goal_is_convolved_at_load(compiled: CompiledPolicy) -> None:
    folded = [op for op in compiled.process.ops if op.kind == "conv2d"]
    assert len(folded) == 2, "one for each camera, whatever the number of observations"
    first = [op for op in ops(compiled, Lifetime.QUERY, "conv2d") if op.inputs[0].shape[2] == 3]  # type: ignore[union-attr]
    assert len(first) == 2 * 2
    assert all(op.inputs[3] is not None and op.inputs[3].lifetime is Lifetime.PROCESS for op in first)


def test_instructions_are_padded_and_padding_is_read(policy: OctoPolicy) -> None:
    """The same tokens under a graph for padding of another length: shorter text sees more padding."""
    given = inputs(policy)
    graph = policy.build(TOKENS)
    values = run_graph(graph, given)
    states = next(array for tensor, array in values.items() if tensor.name == "text.1.final_norm")
    assert states.shape == (8, 24)
    # Padding differs row by row, as its distances from the text do.
    assert np.ptp(states[TOKENS:], axis=0).max() > 1e-3


def test_a_missing_observation_is_not_looked_at(policy: OctoPolicy) -> None:
    given = inputs(policy, valid=(0, 1))
    other = {
        **given,
        **{f"image.{camera}.0": given[f"image.{camera}.0"] ^ 255 for camera in policy.spec.cameras},
    }
    np.testing.assert_array_equal(outputs(policy, given)["action"], outputs(policy, other)["action"])
    seen = {**given, "observation_mask": np.ones((2, 1), np.float32)}
    assert np.abs(outputs(policy, seen)["action"] - outputs(policy, given)["action"]).max() > 1e-6


@pytest.mark.parametrize(
    "name", ["image.primary.0", "image.wrist.0", "image.primary.1", "image.wrist.1", "token_ids"]
)
def test_actions_depend_on_every_input(policy: OctoPolicy, name: str) -> None:
    given, other = inputs(policy), inputs(policy, seed=1)
    changed = outputs(policy, {**given, name: other[name]})["action"]
    assert np.abs(changed - outputs(policy, given)["action"]).max() > 1e-4


def test_unused_columns_hold_noise(checkpoint: Open) -> None:
    policy = OctoPolicy(checkpoint("octo", state_dim=0, action_dim=6))
    given = inputs(policy)
    made = outputs(policy, given)
    assert made["action"].shape == (4, 6) and made["sample"].shape == (4, 7)
    np.testing.assert_allclose(
        made["sample"][:, 6], given["coefficients"][3] * given["step_noise"][:, 6], rtol=1e-7
    )


def test_samples_stay_within_the_bound(policy: OctoPolicy) -> None:
    given = inputs(policy)
    far = {**given, "sample": given["sample"] * 1000}
    assert np.abs(outputs(policy, far)["sample"]).max() == 5


def layout(**changes: Any) -> Layout:
    return Layout(
        **{
            "task": 2,
            "window": 2,
            "images": 3,
            "told": 2,
            "readouts": 1,
            "correct_attention": True,
            **changes,
        }
    )


def test_readouts_are_read_by_readouts_alone() -> None:
    mask = layout().forbidden(1) == 0
    readouts = [2 + 5, 2 + 6 + 5]
    assert mask.shape == (6, 2 + 12)
    assert mask[5].all()
    for row in mask[:5]:
        assert np.flatnonzero(~row).tolist() == readouts


def test_the_first_release_counts_a_single_readout_as_an_observation() -> None:
    assert (layout(correct_attention=False).forbidden(1) == 0).all()
    two = layout(correct_attention=False, readouts=2).forbidden(0) == 0
    assert two[:6, -1].tolist() == [False] * 6 and two[:, :-1].all()


NO_GOAL = {"sees_goal": False, "patch_size": 32}
VARIANTS: dict[str, dict[str, Any]] = {
    "one observation": {"settings": {"n_obs_steps": 1}},
    "without goal, wider patches": {"settings": NO_GOAL, "cameras": (Camera("primary", 64, 32),)},
    "two readouts": {"settings": {"n_readouts": 2}},
    "first release": {"settings": {"use_correct_attention": False, "repeat_task_tokens": False}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_programs_give_what_the_graph_gives(checkpoint: Open, variant: str) -> None:
    policy = OctoPolicy(checkpoint("octo", action_dim=7, **VARIANTS[variant]))
    given = inputs(policy)
    programs = compile_graph(policy.build(TOKENS), FoldCache())
    executable = ReferenceExecutor().load(programs)
    made: dict[str, Array] = {}
    for lifetime, program in programs.programs.items():
        made |= executable.run(lifetime, {name: given[name] for name in program.inputs})
    expected = outputs(policy, given)["action"]
    np.testing.assert_allclose(made["action"], expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_heads": 5}, "dim_model is 48, expected a multiple of n_heads"),
        ({"n_obs_steps": 5}, "n_obs_steps is 5, expected at most 4"),
        ({"n_action_steps": 5}, r"n_action_steps is 5, expected at most chunk_size \(4\)"),
        ({"max_action_dim": 6}, "width of the action is 7, expected at most 6"),
        ({"patch_size": 24}, "patch_size is 24, expected a multiple of 16"),
        ({"patch_size": 64}, "shape of camera 'primary' is .* expected multiples of patch_size"),
        ({"stem_channels": [32, 40]}, "stem_channels is .* expected positive multiples of 32"),
        ({"time_dim": 15}, "time_dim is 15, expected an even number"),
        ({"max_action": 0.0}, "max_action is 0.0, expected a positive number"),
        ({"diffusion_steps": 0}, "diffusion_steps is 0, expected 1 or more"),
    ],
)
def test_configurations_that_cannot_be(checkpoint: Open, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        OctoPolicy(with_config(checkpoint("octo", state_dim=0, action_dim=7), **fields))


def test_a_misfit_of_weights_is_named(checkpoint: Open) -> None:
    policy = OctoPolicy(with_config(checkpoint("octo", state_dim=0, action_dim=7), sees_goal=False))
    with pytest.raises(CheckpointError, match=r"observation\.primary\.stem\.0\.conv\.weight"):
        policy.build(TOKENS)


@pytest.mark.parametrize("tokens", [None, 0, 9])
def test_lengths_of_instructions(policy: OctoPolicy, tokens: int | None) -> None:
    with pytest.raises(GraphError, match="expected 1 to 8"):
        policy.build(tokens)


def test_time_is_told_by_cosines_and_sines() -> None:
    frequencies = np.array([[0.1], [-0.3], [0.25]], np.float32)
    made = fourier_features(20, frequencies)
    angle = 2 * np.pi * 19 * frequencies[:, 0].astype(np.float64)
    np.testing.assert_allclose(made[19], [*np.cos(angle), *np.sin(angle)], atol=1e-7)
    np.testing.assert_array_equal(made[0], [1, 1, 1, 0, 0, 0])
