"""What each policy computes when: no program is chosen by hand, the lifetimes of the inputs decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from small_checkpoints import SIZES

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.policies.registry import define_policy

TOKENS = 3
POLICIES = [("act", False), ("act", True), ("impact", False), ("impact", True)]
WIDTH, LAYERS = SIZES["dim_model"], SIZES["decoder_layers"]


@pytest.fixture(scope="module", params=POLICIES, ids=lambda p: f"{p[0]}-{'pre' if p[1] else 'post'}_norm")
def compiled(request: pytest.FixtureRequest, checkpoint: Callable[..., Checkpoint]) -> CompiledPolicy:
    policy, pre_norm = request.param
    definition = define_policy(checkpoint(policy, sizes={"pre_norm": pre_norm}))
    return compile_graph(definition.build(TOKENS if policy == "impact" else None), FoldCache())


@pytest.fixture(scope="module", params=[False, True], ids=["post_norm", "pre_norm"])
def impact(request: pytest.FixtureRequest, checkpoint: Callable[..., Checkpoint]) -> CompiledPolicy:
    definition = define_policy(checkpoint("impact", sizes={"pre_norm": request.param}))
    return compile_graph(definition.build(TOKENS), FoldCache())


def names(ops: Iterable[Op]) -> list[str]:
    return [op.output.name for op in ops]


def query(compiled: CompiledPolicy) -> tuple[Op, ...]:
    return compiled.programs[Lifetime.QUERY].ops


def operand(op: Op, index: int) -> Tensor:
    tensor = op.inputs[index]
    assert tensor is not None
    return tensor


def test_the_first_decoder_self_attention_is_folded(compiled: CompiledPolicy) -> None:
    first = [name for name in names(query(compiled)) if name.startswith("decoder.0.")]
    assert not [name for name in first if "self_attn" in name or "norm1" in name]
    folded = names(compiled.process.ops)
    assert {"decoder.0.self_attn.attention", "decoder.0.self_attn.out", "decoder.0.norm1"} <= set(folded)
    later = names(query(compiled))
    assert "decoder.1.self_attn.attention" in later, "only the first one is constant"


def test_the_first_cross_attention_s_queries_are_folded(compiled: CompiledPolicy) -> None:
    attention = next(op for op in query(compiled) if op.output.name == "decoder.0.cross_attn.attention")
    assert operand(attention, 0).lifetime is Lifetime.PROCESS
    assert operand(attention, 1).lifetime is Lifetime.QUERY


def test_no_position_is_added_or_projected_in_a_query(compiled: CompiledPolicy) -> None:
    assert "positioned" not in " ".join(names(query(compiled)))
    adding = {op.block for op in query(compiled) if op.kind == "binary"}
    assert adding <= {"preprocess", "postprocess"}
    folded = {name.removesuffix(".whole") for name in names(compiled.process.ops)}
    projected = [name for name in folded if name.endswith("(tokens.positions)")]
    encoder = [f"encoder.{i}.self_attn.{part}(tokens.positions)" for i in range(2) for part in "qk"]
    decoder = [f"decoder.{i}.cross_attn.k(tokens.positions)" for i in range(LAYERS)]
    assert sorted(projected) == sorted(encoder + decoder)


def test_positions_are_residuals_of_queries_and_keys_only(compiled: CompiledPolicy) -> None:
    for index in range(2):
        (layer,) = [op for op in query(compiled) if op.output.name == f"encoder.{index}.self_attn.q+k"]
        residual = operand(layer, 3)
        assert residual.lifetime is Lifetime.PROCESS
        assert compiled.constants[residual].array().any(axis=0).all()
        (values,) = [op for op in query(compiled) if op.output.name == f"encoder.{index}.self_attn.v"]
        assert values.inputs[3] is None, "values have no positions"


def test_every_decoder_layer_projects_the_memory_in_a_block_of_its_own(compiled: CompiledPolicy) -> None:
    cross = [op for op in query(compiled) if op.kind == "linear" and "cross_attn.k" in op.output.name]
    assert [op.block for op in cross] == [f"decoder.{index}" for index in range(LAYERS)]


def test_a_query_has_no_operation_that_could_be_elsewhere(compiled: CompiledPolicy) -> None:
    kinds = {op.kind for op in query(compiled)}
    assert kinds == {
        "normalize_image", "conv2d", "max_pool2d", "reshape", "linear", "concat", "slice", "attention",
        "layer_norm", "binary",
    }  # fmt: skip
    assert len([op for op in query(compiled) if op.kind == "conv2d"]) == 2 * 20
    linears = [op for op in query(compiled) if op.kind == "linear"]
    tokens = 1 + 2  # state and two cameras
    encoder = 2 * 5  # q+k, v, out, linear1, linear2
    # The memory's k and v, out, linear1, linear2; in later layers also self-attention's q+k, v, out, and q.
    decoder = LAYERS * 5 + (LAYERS - 1) * 4
    assert len(linears) == tokens + encoder + decoder + 1


def test_activations_and_residuals_are_epilogues(compiled: CompiledPolicy) -> None:
    convolutions = [op for op in query(compiled) if op.kind == "conv2d"]
    unactivated = [
        op.output.name.rsplit(".", 1)[1] for op in convolutions if op.attrs["activation"] == "none"
    ]
    assert unactivated == ["downsample"] * 6
    assert len([op for op in convolutions if op.inputs[3] is not None]) == 2 * 8
    assert all(op.inputs[2] is not None for op in convolutions), "batch norms leave a bias"
    activated = [op for op in query(compiled) if op.kind == "linear" and op.attrs["activation"] == "relu"]
    assert len(activated) == 2 + LAYERS


def test_the_latent_token_is_a_constant(compiled: CompiledPolicy) -> None:
    single = next(op for op in query(compiled) if op.output.name == "tokens.single")
    assert [t.lifetime for t in single.operands()] == [Lifetime.PROCESS, Lifetime.QUERY]


def test_act_has_nothing_to_do_per_episode(checkpoint: Callable[..., Checkpoint]) -> None:
    policy = compile_graph(define_policy(checkpoint("act")).build(), FoldCache())
    assert policy.programs[Lifetime.EPISODE].ops == ()
    assert policy.programs[Lifetime.STEP].ops == ()


def test_the_text_encoder_runs_per_episode(impact: CompiledPolicy) -> None:
    episode = impact.programs[Lifetime.EPISODE]
    assert list(episode.inputs) == ["token_ids"]
    assert {"text.0", "text.1"} <= {op.block for op in episode.ops}
    assert not [op for op in query(impact) if op.block.startswith("text")]
    assert [op.output.name for op in episode.ops if op.kind == "attention"] == [
        "text.0.self_attn.attention",
        "text.1.self_attn.attention",
    ]


def test_text_tokens_are_projected_per_episode(impact: CompiledPolicy) -> None:
    joined = next(op for op in query(impact) if op.output.name == "tokens.all")
    text = operand(joined, len(joined.inputs) - 1)
    assert text.name == "tokens.text" and text.shape == (TOKENS, WIDTH)
    assert text.lifetime is Lifetime.EPISODE
    assert text in impact.programs[Lifetime.EPISODE].provides


def test_film_coefficients_are_computed_per_episode(impact: CompiledPolicy) -> None:
    episode = names(impact.programs[Lifetime.EPISODE].ops)
    assert "film.coefficients" in episode
    modulated = [op for op in query(impact) if op.kind == "conv2d" and op.inputs[4] is not None]
    assert len(modulated) == 2 * 4
    for op in modulated:
        stage = int(op.block.rsplit("layer", 1)[1][0]) - 1
        gamma, beta = operand(op, 4), operand(op, 5)
        assert (gamma.name, beta.name) == (f"film.gamma.{stage}", f"film.beta.{stage}")
        assert gamma.lifetime is beta.lifetime is Lifetime.EPISODE
        assert op.attrs["activation"] == "relu" and op.inputs[3] is not None


def test_all_that_is_left_of_the_episode_is_text_tokens_and_film(impact: CompiledPolicy) -> None:
    uses = {t.name for t in impact.programs[Lifetime.QUERY].uses}
    coefficients = {f"film.{part}.{stage}" for part in ("gamma", "beta") for stage in range(4)}
    assert uses == {"tokens.text", *coefficients}


def test_the_rule_alone_places_them(checkpoint: Callable[..., Checkpoint]) -> None:
    """The lifetimes are there before any pass has run."""
    graph = define_policy(checkpoint("impact")).build(TOKENS)
    lifetime = {op.output.name: op.output.lifetime for op in graph.ops}
    for name in ("tokens.positions", "decoder.0.self_attn.attention", "decoder.0.norm1", "tokens.latent"):
        assert lifetime[name] is Lifetime.PROCESS
    for name in ("text.1.final_norm", "tokens.text", "film.coefficients", "film.gamma.3"):
        assert lifetime[name] is Lifetime.EPISODE
    for name in ("tokens.all", "encoder.0.self_attn.q", "decoder.0.cross_attn.k", "postprocess.action"):
        assert lifetime[name] is Lifetime.QUERY


def test_instructions_of_different_lengths_share_their_weights(checkpoint: Callable[..., Checkpoint]) -> None:
    definition = define_policy(checkpoint("impact"))
    cache = FoldCache()
    short, long = (compile_graph(definition.build(tokens), cache) for tokens in (2, 7))

    def weights(compiled: CompiledPolicy) -> dict[str, LazyArray]:
        ops = [op for program in compiled.programs.values() for op in program.ops]
        tensors = [op.inputs[1] for op in ops if op.kind in ("linear", "conv2d")]
        return {t.name: compiled.constants[t] for t in tensors if t is not None}

    one, other = weights(short), weights(long)
    assert one.keys() == other.keys()
    assert all(one[name] is other[name] for name in one)


@pytest.fixture(scope="module")
def diffusion(checkpoint: Callable[..., Checkpoint]) -> CompiledPolicy:
    return compile_graph(define_policy(checkpoint("diffusion")).build(), FoldCache())


def test_frames_are_encoded_once_for_all_steps(diffusion: CompiledPolicy) -> None:
    step = diffusion.programs[Lifetime.STEP]
    assert not [op for op in step.ops if op.block.startswith(("backbone", "keypoints", "preprocess"))]
    backbones = {op.block.split(".layer")[0] for op in query(diffusion) if ".layer" in op.block}
    assert backbones == {f"backbone.{camera}.{moment}" for camera in ("front", "wrist") for moment in (0, 1)}
    assert not [op for op in query(diffusion) if op.kind == "conv2d" and op.block.startswith("unet")]


def test_a_step_modulates_with_a_row_of_a_table_and_what_the_query_left(diffusion: CompiledPolicy) -> None:
    step = diffusion.programs[Lifetime.STEP].ops
    assert not [op for op in step if op.kind == "linear"], "nothing but convolutions is left"
    blocks = {op.block for op in step if op.kind == "film"}
    assert len(blocks) == 2 * 2 + 2 + 2
    rows = [op for op in step if op.kind == "embedding"]
    assert {op.block for op in rows} == blocks
    for op in rows:
        assert operand(op, 0).lifetime is Lifetime.PROCESS
        assert operand(op, 0).shape[0] == 12, "one row for each time"
    kept = {t.name for t in diffusion.programs[Lifetime.STEP].uses}
    assert len(kept) == len(blocks)
    assert all("modulation(" in name for name in kept)
