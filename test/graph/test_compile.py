from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from random_graphs import assert_close, graphs

from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, LazyArray, Lifetime
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4, 4)).astype(np.float32)
CAMERA, TEXT = (RNG.normal(size=(rows, 4)).astype(np.float32) for rows in (5, 6))


def run_all(compiled: CompiledPolicy, inputs: dict[str, Array]) -> dict[str, Array]:
    executable = ReferenceExecutor().load(compiled)
    results: dict[str, Array] = {}
    for lifetime in RUNTIME_LIFETIMES:
        given_now = {name: inputs[name] for name in compiled.programs[lifetime].inputs}
        results |= executable.run(lifetime, given_now)
    return results


@given(case=graphs())
@settings(max_examples=100, deadline=None)
def test_programs_compute_what_the_graph_says(case: tuple[Graph, dict[str, Array]]) -> None:
    graph, inputs = case
    expected = run_graph(graph, inputs)
    compiled = compile_graph(graph, FoldCache())
    results = run_all(compiled, inputs)
    for name, tensor in graph.outputs.items():
        if tensor.lifetime is Lifetime.PROCESS:
            results[name] = compiled.constants[compiled.outputs[name]].array()
        assert_close(results[name], expected[tensor], 1e-4)


@given(case=graphs())
@settings(max_examples=60, deadline=None)
def test_programs_hold_what_an_executor_relies_on(case: tuple[Graph, dict[str, Array]]) -> None:
    graph, _ = case
    compiled = compile_graph(graph, FoldCache())
    assert tuple(compiled.programs) == RUNTIME_LIFETIMES
    provided: set[object] = set()
    for lifetime, program in compiled.programs.items():
        defined = {*program.inputs.values(), *program.uses, *program.constants}
        for op in program.ops:
            assert op.output.lifetime is lifetime
            assert op.kind != "batch_norm"
            assert defined.issuperset(op.operands())
            defined.add(op.output)
        assert provided.issuperset(program.uses)
        assert defined.issuperset(program.provides)
        assert set(program.outputs.values()) <= set(program.provides)
        provided.update(program.provides)
        for tensor in program.constants:
            value = compiled.constants[tensor].array()
            assert value.flags.c_contiguous
            assert (value.shape, value.dtype) == (tensor.shape, tensor.dtype.numpy)


def positioned_query(text_rows: int) -> Graph:
    """Queries over a camera's and a text's rows, both with positions; the text's number of rows varies."""
    b = Builder()
    camera = b.input("camera", CAMERA.shape, DType.F32, Lifetime.QUERY)
    text = b.input("text", (text_rows, 4), DType.F32, Lifetime.EPISODE)
    tokens = b.concat([camera, text], axis=0, name="tokens")
    tables = [b.constant("camera.positions", CAMERA), b.constant("text.positions", TEXT)]
    table = b.concat(tables, axis=0, name="table")
    positions = b.slice(table, axis=0, start=0, stop=tokens.shape[0], name="positions")
    weight = b.constant("w", WEIGHTS)
    b.output("q", b.linear(b.add(tokens, positions, name="positioned"), weight, name="q"))
    return b.graph()


def test_another_length_shares_its_constants() -> None:
    cache = FoldCache()
    short, long = (compile_graph(positioned_query(rows), cache) for rows in (2, 6))
    again = compile_graph(positioned_query(2), cache)

    def constants(compiled: CompiledPolicy) -> dict[str, LazyArray]:
        return {tensor.name: value for tensor, value in compiled.constants.items()}

    assert constants(short)["w"] is constants(long)["w"]
    assert constants(short).keys() == constants(again).keys()
    assert all(constants(again)[name] is value for name, value in constants(short).items())


def test_another_length_takes_other_rows_of_the_same_projection() -> None:
    cache = FoldCache()
    short, long = (compile_graph(positioned_query(rows), cache) for rows in (2, 6))

    def residual(compiled: CompiledPolicy) -> LazyArray:
        (layer,) = (op for op in compiled.programs[Lifetime.QUERY].ops if op.kind == "linear")
        assert layer.inputs[3] is not None
        return compiled.constants[layer.inputs[3]]

    assert (residual(short).shape, residual(long).shape) == ((5 + 2, 4), (5 + 6, 4))
    assert residual(short).whole() == residual(long).whole() == (residual(long), 0)
    projected = (np.concatenate([CAMERA, TEXT]).astype(np.float64) @ WEIGHTS.T).astype(np.float32)
    np.testing.assert_array_equal(residual(short).array(), projected[:7])
    np.testing.assert_array_equal(residual(long).array(), projected)


def test_an_episode_value_is_provided_to_the_query() -> None:
    compiled = compile_graph(positioned_query(2), FoldCache())
    episode, query = compiled.programs[Lifetime.EPISODE], compiled.programs[Lifetime.QUERY]
    assert episode.ops == () and list(episode.inputs) == ["text"]
    assert query.uses == episode.provides == (compiled.inputs["text"],)


def test_the_process_program_is_kept_for_inspection() -> None:
    compiled = compile_graph(positioned_query(2), FoldCache())
    assert compiled.process.lifetime is Lifetime.PROCESS
    assert "linear" in {op.kind for op in compiled.process.ops}
    assert compiled.constant_bytes == 4 * (WEIGHTS.size + (5 + 2) * 4)
