from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_checkpoints import BERT, WITH_BERT, random_inputs, with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Graph, Lifetime
from vla_simd_ros.policies.impact import ImpactPolicy

Open = Callable[..., Checkpoint]


def value(values: dict[Any, Array], name: str) -> Array:
    return next(v for tensor, v in values.items() if tensor.name == name)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"settings": {"use_film": False}},
        {"sizes": {"pre_norm": True}},
        {**WITH_BERT, "settings": {**BERT, "backbone_width": 8}},
    ],
    ids=str,
)
@pytest.mark.parametrize("tokens", [1, 8])
def test_programs_compute_what_the_network_says(
    checkpoint: Open, changes: dict[str, Any], tokens: int
) -> None:
    policy = ImpactPolicy(checkpoint("impact", **changes))
    graph = policy.build(tokens)
    inputs = random_inputs(policy.spec, tokens)
    assert inputs.keys() == graph.inputs.keys()
    expected = run_graph(graph, inputs)[graph.outputs["action"]]
    executable = ReferenceExecutor().load(compile_graph(graph, FoldCache()))
    executable.run(Lifetime.EPISODE, {"token_ids": inputs.pop("token_ids")})
    actions = executable.run(Lifetime.QUERY, inputs)["action"]
    assert np.abs(actions - expected).max() <= 1e-6 * np.abs(expected).max()


def test_its_specification_names_the_longest_instruction(checkpoint: Open) -> None:
    spec = ImpactPolicy(checkpoint("impact")).spec
    assert (spec.type, spec.uses_instruction, spec.max_instruction_tokens) == ("impact", True, 8)


def test_a_narrow_backbone_is_modulated_in_its_own_widths(checkpoint: Open) -> None:
    policy = ImpactPolicy(checkpoint("impact", settings={"backbone_width": 8}))
    graph = policy.build(2)
    gammas = {op.output.name: op.output.shape for op in graph.ops if ".gamma." in op.output.name}
    assert list(gammas.values()) == [(1, 8), (1, 16), (1, 32), (1, 64)]


def test_text_comes_last(checkpoint: Open) -> None:
    policy = ImpactPolicy(checkpoint("impact"))
    graph = policy.build(3)
    tokens = next(op for op in graph.ops if op.output.name == "tokens.all")
    assert [t.name for t in tokens.operands()] == [
        "tokens.single",
        "tokens.image.front",
        "tokens.image.wrist",
        "tokens.text",
    ]
    (positions,) = (op for op in graph.ops if op.output.name == "tokens.positions")
    (table,) = positions.operands()
    assert (positions.kind, positions.attrs["start"], positions.output.shape) == (
        "slice",
        0,
        tokens.output.shape,
    )
    (parts,) = (op for op in graph.ops if op.output is table)
    rows = [t.shape[0] for t in tokens.operands()]
    assert [t.shape[0] for t in parts.operands()] == [*rows[:-1], policy.spec.max_instruction_tokens]


def test_gammas_come_before_betas_stage_by_stage(checkpoint: Open) -> None:
    policy = ImpactPolicy(checkpoint("impact"))
    graph = policy.build(2)
    values = run_graph(graph, random_inputs(policy.spec, 2))
    coefficients = value(values, "film.coefficients")[0]
    mean = value(values, "text.1.final_norm").mean(axis=0)
    weights = policy._network.weights
    expected = weights.array("film_head.net.weight") @ mean + weights.array("film_head.net.bias")
    np.testing.assert_allclose(coefficients, expected)
    start = 0
    for stage, channels in enumerate((64, 128, 256, 512)):
        gamma = value(values, f"film.gamma.{stage}")[0]
        np.testing.assert_array_equal(gamma, coefficients[start : start + channels])
        beta = value(values, f"film.beta.{stage}")[0]
        np.testing.assert_array_equal(beta, coefficients[960 + start : 960 + start + channels])
        start += channels


def test_film_follows_the_last_relu_of_a_stage(checkpoint: Open) -> None:
    graph = ImpactPolicy(checkpoint("impact")).build(2)
    producers = graph.producers()
    modulations = [op for op in graph.ops if op.kind == "film"]
    assert [op.block for op in modulations[:4]] == [f"backbone.front.layer{s}.1" for s in (1, 2, 3, 4)]
    for op in modulations:
        source = op.inputs[0]
        assert source is not None and producers[source].kind == "activation"


def test_without_film_the_text_still_counts(checkpoint: Open) -> None:
    policy = ImpactPolicy(checkpoint("impact", settings={"use_film": False}))
    graph = policy.build(2)
    assert not [op for op in graph.ops if op.kind == "film" or op.block == "film"]
    inputs = random_inputs(policy.spec, 2)
    first = action(graph, inputs)
    inputs["token_ids"] = inputs["token_ids"][::-1].copy()
    assert np.abs(action(graph, inputs) - first).max() > 1e-6


def action(graph: Graph, inputs: dict[str, Array]) -> Array:
    return run_graph(graph, inputs)[graph.outputs["action"]]


@pytest.mark.parametrize("tokens", [None, 0, 9])
def test_an_instruction_of_a_length_it_cannot_have_is_refused(checkpoint: Open, tokens: int | None) -> None:
    with pytest.raises(GraphError, match=f"an instruction of {tokens} tokens, expected 1 to 8"):
        ImpactPolicy(checkpoint("impact")).build(tokens)


def test_a_film_head_with_a_hidden_layer_is_refused(checkpoint: Open) -> None:
    with pytest.raises(CheckpointError, match="film_hidden_dim is 64, expected 0"):
        ImpactPolicy(with_config(checkpoint("impact"), film_hidden_dim=64))


class Without:
    """Weights with some of them left out."""

    def __init__(self, weights: Any, prefix: str) -> None:
        self._weights = weights
        self._names = [name for name in weights if not name.startswith(prefix)]
        self.path = weights.path

    def __iter__(self) -> Any:
        return iter(self._names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._weights, name)


def test_a_missing_text_encoder_is_asked_for(checkpoint: Open) -> None:
    whole = checkpoint("impact")
    stripped: Any = Without(whole.weights, "model.text.model.")
    with pytest.raises(CheckpointError, match=r"holds no text encoder .*put the text encoder's config.json"):
        ImpactPolicy(dataclasses.replace(whole, weights=stripped))


def test_a_text_encoder_kept_beside_the_weights_is_used(
    checkpoint: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = checkpoint("impact")
    prefix = "model.text.model."
    beside = {name[len(prefix) :]: whole.tensors[name] for name in whole.tensors if name.startswith(prefix)}

    class Beside(dict[str, Array]):
        def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
            assert expected is None or self[name].shape == expected
            return self[name].shape

        def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
            assert self.shape(name, shape)
            return self[name]

    folder = whole.config["text_config"], Beside(beside)
    monkeypatch.setattr(Checkpoint, "text_encoder", lambda self: folder)
    stripped: Any = Without(whole.weights, prefix)
    inputs = random_inputs(ImpactPolicy(whole).spec, 3)
    apart = ImpactPolicy(dataclasses.replace(whole, weights=stripped)).build(3)
    np.testing.assert_array_equal(action(apart, inputs), action(ImpactPolicy(whole).build(3), inputs))
