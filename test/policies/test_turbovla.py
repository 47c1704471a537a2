from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CAMERAS, random_inputs, with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.checkpoints.synthesis import Camera
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.policies.turbovla import TurboVlaPolicy

Open = Callable[..., Checkpoint]
TOKENS = 3
THREE = (*CAMERAS, Camera("side", 48, 48))
GATED = {"vision_config.use_gated_mlp": True, "vision_config.num_register_tokens": 0}
# DINOv2 has a ratio where DINOv3 has a width; its positions are for images of another size.
DINOV2: dict[str, Any] = {
    "sizes": {"backbone": "dinov2"},
    "settings": {"vision_config.mlp_ratio": 2, "vision_config.image_size": 80},
    "without": ("vision_config.intermediate_size",),
}


def action(policy: TurboVlaPolicy, seed: int = 0, **inputs: Array) -> Array:
    graph = policy.build(TOKENS)
    values = run_graph(graph, {**random_inputs(policy.spec, TOKENS, seed), **inputs})
    return values[graph.outputs["action"]]


class Weights:
    """A checkpoint's weights, some of them under other names or left out."""

    def __init__(self, weights: Any, rename: Callable[[str], str | None]) -> None:
        self._weights = weights
        self._stored = {new: name for name in weights if (new := rename(name)) is not None}
        self.path = weights.path

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def __getattr__(self, attribute: str) -> Any:
        method = getattr(self._weights, attribute)
        return lambda name, *rest: method(self._stored.get(name, name + " (left out)"), *rest)


def renamed(checkpoint: Checkpoint, rename: Callable[[str], str | None]) -> Checkpoint:
    weights: Any = Weights(checkpoint.weights, rename)
    return dataclasses.replace(checkpoint, weights=weights)


@pytest.mark.parametrize("tokens", [2, 8])
@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("turbovla", {}),
        ("turbovla_so101", {"settings": {"feedforward_activation": "gelu", "image_size": 64}}),
        ("turbovla", {"cameras": THREE, "state_dim": 14, "action_dim": 9, "sizes": {"chunk_size": 7}}),
        ("turbovla", {"cameras": CAMERAS[:1], "state_dim": 0}),
        ("turbovla", {"settings": GATED}),
        ("turbovla", {"settings": {"normalization_mapping.VISUAL": "MEAN_STD"}}),
    ],
    ids=str,
)  # fmt: skip
def test_programs_compute_what_the_network_says(
    checkpoint: Open, policy: str, changes: dict[str, Any], tokens: int
) -> None:
    check_programs(TurboVlaPolicy(checkpoint(policy, **changes)), tokens)


def test_programs_of_a_dinov2(checkpoint: Open) -> None:
    check_programs(TurboVlaPolicy(checkpoint("turbovla", **DINOV2)), TOKENS)


def check_programs(policy: TurboVlaPolicy, tokens: int) -> None:
    graph = policy.build(tokens)
    inputs = random_inputs(policy.spec, tokens)
    assert inputs.keys() == graph.inputs.keys()
    expected = run_graph(graph, inputs)[graph.outputs["action"]]
    executable = ReferenceExecutor().load(compile_graph(graph, FoldCache()))
    executable.run(Lifetime.EPISODE, {"token_ids": inputs.pop("token_ids")})
    actions = executable.run(Lifetime.QUERY, inputs)["action"]
    assert actions.shape == (policy.spec.chunk_size, policy.spec.action_dim)
    assert np.abs(actions - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("form", ["turbovla", "turbovla_so101"])
def test_its_specification_names_the_form_and_the_longest_instruction(checkpoint: Open, form: str) -> None:
    spec = TurboVlaPolicy(checkpoint(form)).spec
    assert (spec.type, spec.uses_instruction, spec.max_instruction_tokens) == (form, True, 8)
    assert (spec.chunk_size, spec.n_action_steps) == (5, 5)


def test_both_forms_are_one_network(checkpoint: Open) -> None:
    one, other = (TurboVlaPolicy(checkpoint(form)) for form in ("turbovla", "turbovla_so101"))
    np.testing.assert_array_equal(action(one), action(other))


def test_every_input_counts(checkpoint: Open) -> None:
    policy = TurboVlaPolicy(checkpoint("turbovla"))
    first, other = action(policy), random_inputs(policy.spec, TOKENS, seed=1)
    for name, value in other.items():
        assert np.abs(action(policy, **{name: value}) - first).max() > 1e-3 * np.abs(first).max(), name


def test_cameras_are_told_apart(checkpoint: Open) -> None:
    policy = TurboVlaPolicy(checkpoint("turbovla", cameras=(Camera("a", 48, 48), Camera("b", 48, 48))))
    inputs = random_inputs(policy.spec, TOKENS)
    swapped = {"image.a": inputs["image.b"], "image.b": inputs["image.a"]}
    assert np.abs(action(policy, **swapped) - action(policy)).max() > 1e-4


@pytest.fixture(scope="module")
def compiled(checkpoint: Open) -> CompiledPolicy:
    return compile_graph(TurboVlaPolicy(checkpoint("turbovla")).build(TOKENS), FoldCache())


def blocks(compiled: CompiledPolicy, lifetime: Lifetime) -> set[str]:
    return {op.block for op in compiled.programs[lifetime].ops}


def test_the_text_side_runs_per_episode_as_far_as_it_goes(compiled: CompiledPolicy) -> None:
    episode = compiled.programs[Lifetime.EPISODE]
    assert list(episode.inputs) == ["token_ids"]
    assert blocks(compiled, Lifetime.EPISODE) == {"text.0", "text.1", "tokens", "fusion.0"}
    assert not [block for block in blocks(compiled, Lifetime.QUERY) if block.startswith("text")]
    # Of the first interaction layer: what only reads the instruction.
    first = {op.output.name for op in episode.ops if op.block == "fusion.0" and op.kind != "slice"}
    assert first == {"fusion.0.text.norm1", "fusion.0.vision.cross_attn.k..fusion.0.text.cross_attn.q"}
    left = {tensor.name for tensor in compiled.programs[Lifetime.QUERY].uses}
    parts = {"vision.cross_attn.k", "vision.cross_attn.v", "text.cross_attn.q"}
    assert left == {"tokens.text", *(f"fusion.0.{part}" for part in parts)}


def test_what_needs_no_input_is_folded(compiled: CompiledPolicy) -> None:
    folded = {op.output.name for op in compiled.process.ops}
    # The decoder's own first look at its queries, the places of patches, and the scales of layers.
    assert {"decoder.0.self_attn.attention", "decoder.0.norm_cross", "decoder.0.cross_attn.q"} <= folded
    assert {"tokens.place.0", "tokens.place.1", "vision.embed.before"} <= folded
    assert {f"vision.{i}.{part}.weight" for i in range(2) for part in ("self_attn.out", "linear2")} <= folded
    left = {op.output.name for op in compiled.programs[Lifetime.QUERY].ops}
    assert not [name for name in left if name.startswith("decoder.0.self_attn")]
    assert "decoder.1.self_attn.attention" in left


def test_a_query_has_no_operation_that_could_be_elsewhere(compiled: CompiledPolicy) -> None:
    ops = compiled.programs[Lifetime.QUERY].ops
    assert {op.kind for op in ops} == {
        "normalize_image", "resize", "conv2d", "reshape", "linear", "concat", "slice", "attention",
        "layer_norm", "rotary", "binary",
    }  # fmt: skip
    assert {op.block for op in ops if op.kind == "binary"} == {"preprocess", "postprocess"}
    layers = [op for op in ops if op.kind == "linear" and op.block == "vision.0"]
    assert len(layers) == 4, "one product each for q, k and v, out, and the two of the feed-forward layer"
    rows = {op.output.shape[0] for op in layers}
    assert rows == {2 * (1 + 4 + 9)}, "all views together"


def test_an_image_of_the_right_size_is_not_resized(checkpoint: Open) -> None:
    policy = TurboVlaPolicy(checkpoint("turbovla", cameras=(Camera("a", 48, 48), Camera("b", 50, 48))))
    resized = [op.output.name for op in policy.build(TOKENS).ops if op.kind == "resize"]
    assert resized == ["preprocess.image.b.resized"]


@pytest.mark.parametrize("state", [None, "after_norm", "before_norm"])
def test_the_hidden_state_of_the_vision_encoder(checkpoint: Open, state: str | None) -> None:
    whole = checkpoint("turbovla")
    graph = TurboVlaPolicy(with_config(whole, vision_hidden_state=state)).build(TOKENS)
    norms = [op for op in graph.ops if op.output.name.startswith("vision.1.final_norm")]
    assert len(norms) == (0 if state == "before_norm" else 2)


def test_the_hidden_state_before_the_norm_is_another_policy(checkpoint: Open) -> None:
    whole = checkpoint("turbovla")
    before = with_config(whole, vision_hidden_state="before_norm")
    after = action(TurboVlaPolicy(whole))
    assert np.abs(action(TurboVlaPolicy(before)) - after).max() > 1e-2 * np.abs(after).max()
    # The norm is not asked for where it is not used.
    without = renamed(before, lambda name: None if name.startswith("model.vision_encoder.norm") else name)
    np.testing.assert_array_equal(action(TurboVlaPolicy(without)), action(TurboVlaPolicy(before)))


def test_layers_are_found_under_their_older_names(checkpoint: Open) -> None:
    whole = checkpoint("turbovla")
    older = renamed(whole, lambda name: name.replace("vision_encoder.model.layer.", "vision_encoder.layer."))
    np.testing.assert_array_equal(action(TurboVlaPolicy(older)), action(TurboVlaPolicy(whole)))


def test_a_vision_encoder_without_layers_is_refused(checkpoint: Open) -> None:
    without = renamed(checkpoint("turbovla"), lambda name: None if ".layer.0.norm1" in name else name)
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.vision_encoder\.model\.layer\.0\.norm1"):
        TurboVlaPolicy(without)


@pytest.mark.parametrize("tokens", [None, 0, 9])
def test_an_instruction_of_a_length_it_cannot_have_is_refused(checkpoint: Open, tokens: int | None) -> None:
    with pytest.raises(GraphError, match=f"an instruction of {tokens} tokens, expected 1 to 8"):
        TurboVlaPolicy(checkpoint("turbovla")).build(tokens)
