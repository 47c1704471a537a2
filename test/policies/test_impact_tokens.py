from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from small_checkpoints import CAMERAS, WITH_BERT, random_inputs, with_config
from token_reference import TokenReference

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.decoding.decoders import DECODERS, DecoderOptions
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.observations import random_observations
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import Policy
from vla_simd_ros.policies.impact_tokens import ImpactTokensPolicy
from vla_simd_ros.policies.weights import Weights

Open = Callable[..., Checkpoint]


def encoded(policy: ImpactTokensPolicy, tokens: int) -> tuple[Array, dict[str, Array]]:
    """What IMPACT's encoder gives, in float64, and the inputs that it was given."""
    graph = policy.build(tokens)
    inputs = random_inputs(policy.spec, tokens)
    steps = {"step_ids": np.zeros(1, np.int32), "step_positions": np.array([40], np.int32)}
    values = run_graph(graph, {**inputs, **steps})
    (projected,) = (op for op in graph.ops if op.output.name == "prefix.0.input")
    assert projected.inputs[0] is not None
    return values[projected.inputs[0]], inputs


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"settings": {"token_kv_heads": 3, "n_token_layers": 1, "rope_theta": 300.0, "use_film": False}},
        {"sizes": {"pre_norm": True}, "env_state_dim": 2, "seed": 1},
        WITH_BERT,
    ],
    ids=str,
)
def test_scores_are_those_of_the_network(checkpoint: Open, changes: dict[str, Any]) -> None:
    tokens = 3
    whole = checkpoint("impact_tokens", **changes)
    policy = ImpactTokensPolicy(whole)
    rows, inputs = encoded(policy, tokens)
    assert len(rows) == policy.action_tokens.prefix_rows(tokens)
    follows = [3, 19, 0, 7, 7, 12]
    expected = TokenReference(whole).scores(rows, follows)

    executor, cache = ReferenceExecutor(), FoldCache()
    executable = executor.load(compile_graph(policy.build(tokens), cache))
    executable.run(Lifetime.EPISODE, {"token_ids": inputs.pop("token_ids")})
    assert executable.run(Lifetime.QUERY, inputs) == {}
    ids = [policy.action_tokens.first, *follows]
    for row, token in enumerate(ids):
        positions = np.array([len(rows) + row], np.int32)
        steps = {"step_ids": np.array([token], np.int32), "step_positions": positions}
        scores = executable.run(Lifetime.STEP, steps)["scores"]
        np.testing.assert_allclose(
            scores, expected[row : row + 1], rtol=0, atol=1e-6 * np.abs(expected).max()
        )

    together = executor.load(compile_graph(policy.build(tokens, len(ids)), cache))
    positions = np.arange(len(rows), len(rows) + len(ids), dtype=np.int32)
    steps = {"step_ids": np.array(ids, np.int32), "step_positions": positions}
    scores = together.run(Lifetime.STEP, steps)["scores"]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("changes", [{}, {"settings": {"token_kv_heads": 3}, "seed": 5}], ids=str)
def test_actions_are_the_centres_of_the_greedy_bins(checkpoint: Open, changes: dict[str, Any]) -> None:
    whole = checkpoint("impact_tokens", **changes)
    policy = Policy(whole, SimdExecutor(threads=1))
    policy.set_instruction("put the cube on the pad")
    (seen,) = random_observations(whole, 1, 3)
    tokens = TokenReference(whole).greedy(encoder_output(whole, policy, seen), 30)
    low, high = (whole.weights.tensor(f"model.tokens.action_{end}").astype(float) for end in ("low", "high"))
    bins = np.array(tokens).reshape(5, 6)
    expected = low + (bins + 0.5) / 20 * (high - low) + seen.state
    for decoder in DECODERS:
        policy.set_decoder(decoder, sigma=1.0, block=8)
        query = policy.query(seen)
        assert query.decoded is not None and query.decoded.exact
        assert list(query.decoded.tokens) == tokens
        np.testing.assert_allclose(query.actions, expected, rtol=0, atol=1e-6)


def encoder_output(whole: Checkpoint, policy: Policy, seen: Any) -> Array:
    definition = ImpactTokensPolicy(whole)
    ids = whole.tokenizer().encode("put the cube on the pad")
    graph = definition.build(len(ids))
    inputs = {**policy.request(seen).values, "token_ids": np.array(ids, np.int32)}
    steps = {"step_ids": np.zeros(1, np.int32), "step_positions": np.array([40], np.int32)}
    values = run_graph(graph, {**inputs, **steps})
    (projected,) = (op for op in graph.ops if op.output.name == "prefix.0.input")
    assert projected.inputs[0] is not None
    return values[projected.inputs[0]]


@pytest.mark.parametrize("seed", range(3))
def test_tokens_do_not_depend_on_the_decoder(checkpoint: Open, seed: int) -> None:
    """Other weights, other guesses and blocks of other sizes, one after the other on one policy: the tokens,
    and with them all actions, are those of a fresh policy that decodes one after the other."""
    whole = checkpoint("impact_tokens", seed=seed)
    rng = np.random.default_rng(seed)
    executor = SimdExecutor(threads=1)
    seen = random_observations(whole, 3, seed)
    plain = Policy(whole, executor, decoder=DecoderOptions("autoregressive"))
    plain.set_instruction("go")
    expected = [plain.query(one) for one in seen]
    policy = Policy(whole, executor)
    policy.set_instruction("go")
    for _ in range(8):
        policy.set_decoder(
            "jacobi",
            block=int(rng.integers(0, 40)),
            initialization=str(rng.choice(["random", "repeat"])),
            decoder_seed=int(rng.integers(100)),
        )
        index = int(rng.integers(len(seen)))
        query = policy.query(seen[index])
        assert query.decoded is not None and expected[index].decoded is not None
        assert query.decoded.tokens == expected[index].decoded.tokens
        np.testing.assert_array_equal(query.actions, expected[index].actions)


class Counting(ReferenceExecutor):
    """Counts the operations that it runs, by lifetime."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[Lifetime, int] = dict.fromkeys(Lifetime, 0)

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Any:
        return _Counted(super().load(compiled), compiled, self)


class _Counted:
    def __init__(self, inner: Executable, compiled: CompiledPolicy, counting: Counting) -> None:
        self._inner, self._compiled, self._counting = inner, compiled, counting

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._counting.operations[lifetime] += len(self._compiled.programs[lifetime].ops)
        return self._inner.run(lifetime, inputs)

    def tensor(self, tensor: Tensor) -> Array:
        return self._inner.tensor(tensor)


def test_operations_of_the_prefix_run_once_per_query(checkpoint: Open) -> None:
    whole = checkpoint("impact_tokens")
    programs = compile_graph(ImpactTokensPolicy(whole).build(2), FoldCache()).programs
    counting = Counting()
    policy = Policy(whole, counting)
    policy.set_instruction("go")
    (seen,) = random_observations(whole, 1, 0)
    policy.query(seen)
    for decoder in DECODERS:
        policy.set_decoder(decoder)
        if decoder == "auto":
            policy.query(seen)  # measures what passes cost
        counting.operations = dict.fromkeys(Lifetime, 0)
        decoded = policy.query(seen).decoded
        assert decoded is not None
        assert counting.operations == {
            Lifetime.PROCESS: 0,
            Lifetime.EPISODE: 0,
            Lifetime.QUERY: len(programs[Lifetime.QUERY].ops),
            Lifetime.STEP: len(decoded.passes) * len(programs[Lifetime.STEP].ops),
        }


def test_where_each_part_runs(checkpoint: Open) -> None:
    programs = compile_graph(ImpactTokensPolicy(checkpoint("impact_tokens")).build(3), FoldCache()).programs
    blocks = {lifetime: {op.block.split(".")[0] for op in programs[lifetime].ops} for lifetime in programs}
    assert {"text", "film"} <= blocks[Lifetime.EPISODE]
    assert {"backbone", "encoder", "prefix"} <= blocks[Lifetime.QUERY] and "film" not in blocks[
        Lifetime.QUERY
    ]
    assert blocks[Lifetime.STEP] == {"actions", "head"}
    assert not programs[Lifetime.STEP].uses and not programs[Lifetime.QUERY].outputs
    # Nobody reads what the prefix's rows are behind its last layer.
    last = [op.kind for op in programs[Lifetime.QUERY].ops if op.block == "prefix.1"]
    assert "append" in last and "cached_attention" not in last


@pytest.mark.parametrize("size", [(31, 32), (33, 65), (96, 128), (480, 640), (1, 1)])
@pytest.mark.parametrize(
    "settings",
    [{}, {"vision_backbone": "resnet50", "replace_final_stride_with_dilation": True}],
    ids=["stride", "dilated"],
)
def test_the_rows_of_a_picture_are_known(
    checkpoint: Open, size: tuple[int, int], settings: dict[str, Any]
) -> None:
    cameras = tuple(dataclasses.replace(camera, height=size[0], width=size[1]) for camera in CAMERAS)
    whole = checkpoint("impact_tokens", cameras=cameras, settings={**settings, "backbone_width": 4})
    policy = ImpactTokensPolicy(whole)
    (prefix,) = (op for op in policy.build(2).ops if op.output.name == "prefix.0.input")
    assert prefix.output.shape[0] == policy.action_tokens.prefix_rows(2)


def test_its_specification(checkpoint: Open) -> None:
    policy = ImpactTokensPolicy(checkpoint("impact_tokens"))
    spec, tokens = policy.spec, policy.action_tokens
    assert (spec.type, spec.max_instruction_tokens, spec.relative_actions) == ("impact_tokens", 8, True)
    assert (spec.chunk_size, spec.n_action_steps, spec.action_dim) == (5, 5, 6)
    assert (tokens.vocabulary, tokens.first, tokens.count, tokens.stop) == (21, 20, 30, frozenset())
    absolute = ImpactTokensPolicy(checkpoint("impact_tokens", settings={"relative_actions": False}))
    assert not absolute.spec.relative_actions


@pytest.mark.parametrize("tokens", [None, 0, 9])
def test_an_instruction_of_a_length_it_cannot_have_is_refused(checkpoint: Open, tokens: int | None) -> None:
    with pytest.raises(
        GraphError, match=f"impact_tokens: got an instruction of {tokens} tokens, expected 1 to"
    ):
        ImpactTokensPolicy(checkpoint("impact_tokens")).build(tokens)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token_width": 25}, "token_width is 25, expected an even width for each of token_heads"),
        ({"token_width": 27, "token_heads": 9, "token_kv_heads": 9}, "token_width is 27, expected an even"),
        ({"token_kv_heads": 2}, r"token_kv_heads is 2, expected a divisor of token_heads \(3\)"),
        ({"action_bins": 0}, "action_bins is 0, expected 1 or more"),
        ({"n_token_layers": -1}, "n_token_layers is -1, expected 1 or more"),
        ({"rms_norm_eps": 0.0}, r"rms_norm_eps is 0\.0, expected a finite number above 0"),
        ({"rope_theta": -1.0}, r"rope_theta is -1\.0, expected a finite number above 0"),
        ({"relative_actions": "yes"}, "relative_actions"),
        ({"action_stride": 2}, "action_stride is 2, expected 1"),
        ({"action_bins": 21}, "embed_tokens.weight"),
    ],
)
def test_what_does_not_fit_is_named(checkpoint: Open, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ImpactTokensPolicy(with_config(checkpoint("impact_tokens"), **fields)).build(2)


def test_relative_actions_need_a_state_of_their_width(checkpoint: Open) -> None:
    whole = with_config(checkpoint("impact_tokens", state_dim=4), relative_actions=True)
    with pytest.raises(CheckpointError, match=r"a state as wide as the action \(6, got 4\)"):
        ImpactTokensPolicy(whole)


@pytest.mark.parametrize(("end", "value"), [("low", np.nan), ("high", np.inf), ("high", -9.0)])
def test_bins_that_are_none(
    checkpoint: Open, monkeypatch: pytest.MonkeyPatch, end: str, value: float
) -> None:
    whole = checkpoint("impact_tokens")
    array = Weights.array

    def changed(weights: Weights, name: str, shape: tuple[int, ...] | None = None) -> Array:
        values = array(weights, name, shape).copy()
        if name == f"action_{end}":
            values[2] = value
        return values

    monkeypatch.setattr(Weights, "array", changed)
    with pytest.raises(CheckpointError, match=f"the bins of action 2 reach from .*{value}"):
        ImpactTokensPolicy(whole)


def test_a_token_that_is_no_action(checkpoint: Open) -> None:
    tokens = ImpactTokensPolicy(checkpoint("impact_tokens")).action_tokens
    with pytest.raises(
        DecodingError, match="token 20 at place 1 is no action, expected one of the bins 0 to 19"
    ):
        tokens.actions([0, 20, 3, 4, 5, 6])
    assert tokens.actions([0, 1, 2, 3, 4, 5, 6]).shape == (1, 6), "rows that are whole"
