"""The engine against the float64 reference, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from operation_samples import SAMPLES, sample_policy
from random_graphs import assert_close, graphs
from small_policy import IMAGE, INPUTS, small_policy

from vla_simd_ros import _engine
from vla_simd_ros.executors.base import Cancelled, Executable, InputError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_constants import pixel_table
from vla_simd_ros.executors.simd_executor import SimdExecutable, SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy

Inputs = Mapping[Lifetime, Mapping[str, Array]]


def outputs(executable: Executable, inputs: Inputs = INPUTS) -> dict[str, Array]:
    results: dict[str, Array] = {}
    for lifetime in RUNTIME_LIFETIMES:
        results |= executable.run(lifetime, inputs[lifetime])
    return results


def by_lifetime(compiled: CompiledPolicy, inputs: Mapping[str, Array]) -> Inputs:
    return {
        lifetime: {name: inputs[name] for name in program.inputs}
        for lifetime, program in compiled.programs.items()
    }


def compiled(builder: Builder, result: Tensor) -> CompiledPolicy:
    builder.output("y", result)
    return compile_graph(builder.graph(), FoldCache())


@pytest.fixture(scope="module", params=_engine.available_isas())
def executor(request: pytest.FixtureRequest) -> SimdExecutor:
    return SimdExecutor(threads=2, isa=request.param)


@pytest.fixture
def loaded() -> SimdExecutable:
    return SimdExecutor(threads=2).load(small_policy())


def test_it_agrees_with_the_reference(executor: SimdExecutor) -> None:
    policy = small_policy()
    got, reference = executor.load(policy), ReferenceExecutor().load(policy)
    results, expected = outputs(got), outputs(reference)
    assert results.keys() == expected.keys() == {"prefix", "action"}
    for name, value in results.items():
        assert value.dtype == np.float32
        assert_close(value, expected[name], 2e-6)
    for program in policy.programs.values():
        for tensor in program.provides:
            assert_close(got.tensor(tensor), reference.tensor(tensor), 2e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(graphs())
def test_it_agrees_with_the_reference_on_any_graph(
    executor: SimdExecutor, case: tuple[Graph, dict[str, Array]]
) -> None:
    policy = compile_graph(case[0], FoldCache())
    inputs = by_lifetime(policy, case[1])
    got, expected = executor.load(policy), ReferenceExecutor().load(policy)
    for round_ in range(2):  # the second time over memory that was used
        results, reference = outputs(got, inputs), outputs(expected, inputs)
        assert results.keys() == reference.keys(), round_
        for name, value in results.items():
            assert_close(value, reference[name], 1e-5)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_operation_agrees_with_the_reference(executor: SimdExecutor, name: str) -> None:
    policy, inputs = sample_policy(name)
    got = executor.load(policy).run(Lifetime.QUERY, inputs)["y"]
    assert_close(got, ReferenceExecutor().load(policy).run(Lifetime.QUERY, inputs)["y"], 2e-6)


def test_threads_do_not_change_a_bit(executor: SimdExecutor) -> None:
    rng = np.random.default_rng(5)
    builder = Builder()
    x = builder.input("x", (70, 96), DType.F32, Lifetime.QUERY)
    weights = {name: rng.normal(size=(96, 96)).astype(np.float32) for name in "qkv"}
    q, k, v = (builder.linear(x, builder.constant(f"w{n}", w), name=n) for n, w in weights.items())
    wide = builder.constant("wide.weight", rng.normal(size=(700, 96)).astype(np.float32))
    y = builder.linear(builder.attention(q, k, v, heads=4, scale=0.2, name="attention"), wide, name="wide")
    policy = compiled(builder, builder.activation("gelu", y, name="gelu"))
    inputs = {"x": rng.normal(size=(70, 96)).astype(np.float32)}
    expected = executor.load(policy).run(Lifetime.QUERY, inputs)["y"]
    for threads in (1, 3, 4):
        other = SimdExecutor(threads=threads, isa=executor.isa).load(policy)
        for _ in range(3):
            assert np.array_equal(other.run(Lifetime.QUERY, inputs)["y"], expected)


def test_images_are_normalized_in_float32_exactly(executor: SimdExecutor) -> None:
    builder = Builder()
    offset = np.array([0.485, 0.456, 0.406], np.float32)
    divisor = np.array([0.229, 0.224, 0.225], np.float32)
    image = builder.input("image", IMAGE.shape, DType.U8, Lifetime.QUERY)
    constants = (builder.constant("offset", offset), builder.constant("divisor", divisor))
    policy = compiled(builder, builder.normalize_image(image, *constants, name="y"))
    got = executor.load(policy).run(Lifetime.QUERY, {"image": IMAGE})["y"]
    assert np.array_equal(got, (IMAGE.astype(np.float32) / np.float32(255) - offset) / divisor)
    assert pixel_table(offset, divisor).shape == (3, 256)


def test_steps_repeat_and_queries_start_anew(loaded: SimdExecutable) -> None:
    first = outputs(loaded)
    noise = {"noise": -INPUTS[Lifetime.STEP]["noise"]}
    other = loaded.run(Lifetime.STEP, noise)["action"]
    assert not np.array_equal(other, first["action"])
    assert np.array_equal(loaded.run(Lifetime.STEP, INPUTS[Lifetime.STEP])["action"], first["action"])
    state = {**INPUTS[Lifetime.QUERY], "state": np.zeros((1, 4), np.float32)}
    assert not np.array_equal(loaded.run(Lifetime.QUERY, state)["prefix"], first["prefix"])
    assert np.array_equal(loaded.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])["prefix"], first["prefix"])
    assert np.array_equal(outputs(loaded)["action"], first["action"])


def test_results_are_copies(loaded: SimdExecutable) -> None:
    first = outputs(loaded)["action"]
    kept = first.copy()
    first[:] = 7
    assert np.array_equal(loaded.run(Lifetime.STEP, INPUTS[Lifetime.STEP])["action"], kept)


def test_programs_need_what_they_build_on(loaded: SimdExecutable) -> None:
    with pytest.raises(RuntimeError, match="the QUERY program uses results of EPISODE, which has not run"):
        loaded.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
    loaded.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    with pytest.raises(RuntimeError, match="the STEP program uses results of QUERY"):
        loaded.run(Lifetime.STEP, INPUTS[Lifetime.STEP])
    outputs(loaded)
    loaded.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])  # a new instruction makes the query stale
    with pytest.raises(RuntimeError, match="the STEP program uses results of QUERY"):
        loaded.run(Lifetime.STEP, INPUTS[Lifetime.STEP])


def test_tensors_can_be_read_once_computed(loaded: SimdExecutable) -> None:
    policy = small_policy()
    executable = SimdExecutor(threads=1).load(policy)
    provided = policy.programs[Lifetime.EPISODE].provides[0]
    with pytest.raises(KeyError, match="the EPISODE program has not run"):
        executable.tensor(provided)
    outputs(executable)
    executable.tensor(provided)[...] = 0
    assert executable.tensor(provided).any()
    constant, value = next(iter(policy.constants.items()))
    assert np.array_equal(executable.tensor(constant), value.array())
    inner = next(op.output for op in policy.programs[Lifetime.QUERY].ops if op.kind == "conv2d")
    with pytest.raises(KeyError):
        executable.tensor(inner)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'image' is missing"),
        ({**INPUTS[Lifetime.QUERY], "depth": IMAGE}, "input 'depth' is unknown"),
        (
            {**INPUTS[Lifetime.QUERY], "image": IMAGE[:, ::2]},
            r"input 'image': got \(9, 6, 3\) uint8, expected",
        ),
        (
            {**INPUTS[Lifetime.QUERY], "state": np.zeros((1, 4))},
            r"input 'state': got \(1, 4\) float64, expected",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    loaded: SimdExecutable, inputs: Mapping[str, Array], message: str
) -> None:
    loaded.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    with pytest.raises(InputError, match=message):
        loaded.run(Lifetime.QUERY, inputs)
    loaded.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])


def test_inputs_may_be_strided(loaded: SimdExecutable) -> None:
    expected = outputs(loaded)["prefix"]
    mirrored = np.ascontiguousarray(IMAGE[:, ::-1])[:, ::-1]
    loaded.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    got = loaded.run(Lifetime.QUERY, {**INPUTS[Lifetime.QUERY], "image": mirrored})["prefix"]
    assert np.array_equal(got, expected)


def test_keys_in_spaced_rows_are_the_same_keys(executor: SimdExecutor) -> None:
    b = Builder()
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((width, 32)).astype(np.float32) for width in (512, 256)]
    x = b.input("x", (80, 32), DType.F32, Lifetime.QUERY)
    kv, q = (b.linear(x, b.constant(f"w{i}", w), name=f"l{i}") for i, w in enumerate(weights))
    k, v = (b.slice(kv, axis=1, start=256 * i, stop=256 * i + 256, name=f"s{i}") for i in (0, 1))
    policy = compiled(b, b.attention(q, k, v, heads=4, kv_heads=4, scale=0.02, name="y"))
    inputs = by_lifetime(policy, {"x": rng.standard_normal((80, 32)).astype(np.float32)})
    got, expected = (outputs(each.load(policy), inputs)["y"] for each in (executor, ReferenceExecutor()))
    assert np.abs(got - expected).max() < 2e-6 * np.abs(expected).max()


def test_a_program_by_itself_has_a_time(executor: SimdExecutor) -> None:
    b = Builder()
    x = b.input("x", (4, 8), DType.F32, Lifetime.QUERY)
    policy = compiled(b, b.activation("relu", x, name="y"))
    inputs = by_lifetime(policy, {"x": np.ones((4, 8), np.float32)})
    alone = executor.load(policy)
    outputs(alone, inputs)
    assert 0 < alone.mean_ms(Lifetime.QUERY, inputs[Lifetime.QUERY]) < 1e4


@pytest.mark.parametrize("token", [-1, 10, 2**31 - 1])
def test_tokens_outside_the_table_are_refused(loaded: SimdExecutable, token: int) -> None:
    with pytest.raises(
        InputError, match=f"EPISODE: op 'embedded': index {token} at position 1 .* of 10 rows"
    ):
        loaded.run(Lifetime.EPISODE, {"ids": np.array([1, token, 2], np.int32)})
    with pytest.raises(RuntimeError, match="EPISODE, which has not run"):
        loaded.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])


def test_a_query_in_flight_can_be_cancelled() -> None:
    executor = SimdExecutor(threads=2)
    executable = executor.load(small_policy())
    expected = outputs(executable)["action"]
    started, ended = threading.Event(), threading.Event()

    def ask_until_cancelled() -> None:
        try:
            while True:
                executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
                started.set()
        except Cancelled:
            ended.set()

    thread = threading.Thread(target=ask_until_cancelled, daemon=True)
    thread.start()
    assert started.wait(10)
    executor.cancel()
    assert ended.wait(10)
    thread.join()
    with pytest.raises(Cancelled):
        executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
    with pytest.raises(RuntimeError, match="QUERY, which has not run"):
        executable.run(Lifetime.STEP, INPUTS[Lifetime.STEP])
    executor.resume()
    assert np.array_equal(outputs(executable)["action"], expected)


def test_executables_that_share_memory_take_turns() -> None:
    executor = SimdExecutor(threads=1)
    first = executor.load(small_policy())
    second = executor.load(small_policy(), first)
    assert second.memory is first.memory
    expected = outputs(first)["action"]
    second.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    with pytest.raises(RuntimeError, match="EPISODE, which has not run"):
        first.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
    assert np.array_equal(outputs(second)["action"], expected)
    assert np.array_equal(outputs(first)["action"], expected)


def test_memory_that_is_too_small_is_not_shared() -> None:
    executor = SimdExecutor(threads=1)
    b = Builder()
    b.output("y", b.activation("relu", b.input("x", (1, 4), DType.F32, Lifetime.QUERY), name="y"))
    tiny = executor.load(compile_graph(b.graph(), FoldCache()))
    large = executor.load(small_policy(), tiny)
    assert large.memory is not tiny.memory and large.arena_bytes > tiny.arena_bytes


def test_policies_share_packed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[Array] = []
    executor = SimdExecutor(threads=1)
    original = executor._engine.pack
    weight = np.ones((8, 4), np.float32)

    class Counting:
        def pack(self, matrix: Array, *form: int, **options: bool) -> _engine.PackedWeights:
            packed.append(matrix)
            return original(matrix, *form, **options)

    monkeypatch.setattr(executor._constants, "_engine", Counting())
    for rows in (1, 5):
        builder = Builder()
        x = builder.input("x", (rows, 4), DType.F32, Lifetime.QUERY)
        policy = compiled(builder, builder.linear(x, builder.constant("w", weight), name="y"))
        executable = executor.load(policy)
        assert (executable.run(Lifetime.QUERY, {"x": np.ones((rows, 4), np.float32)})["y"] == 4).all()
    assert len(packed) == 1


def test_a_profile_names_every_record(loaded: SimdExecutable) -> None:
    for lifetime in RUNTIME_LIFETIMES:
        records = loaded.profile(lifetime, INPUTS[lifetime], repeats=2)
        assert records and all(record.ms >= 0 for record in records)
        copied = {record.op.kind for record in records if record.kernel == "copy"}
        assert copied <= {"concat", "slice", "reshape"}
    loaded.run(Lifetime.STEP, INPUTS[Lifetime.STEP])


def test_kernels_have_names(executor: SimdExecutor) -> None:
    ops = {op.kind: op for program in small_policy().programs.values() for op in program.ops}
    in_panels = 2 * ops["linear"].output.shape[1] > _engine.Engine(threads=1, isa=executor.isa).tile[1]
    how = "linear" if in_panels else "linear_rows"
    assert executor.kernel_name(ops["linear"]).startswith(f"{how}_{executor.isa}")
    direct = SimdExecutor(isa=executor.isa, convolution="direct")
    assert direct.kernel_name(ops["conv2d"]).startswith(f"conv2d_{executor.isa}_")
    assert executor.kernel_name(ops["conv2d"]).startswith(f"flat_{executor.isa}_")
    assert executor.kernel_name(ops["layer_norm"]) == f"layer_norm_{executor.isa}"
    assert executor.kernel_name(ops["reshape"]) == "view"


def test_settings_that_cannot_be_had_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"isa='sse9': unknown instruction set, available here: .*portable"):
        SimdExecutor(isa="sse9")
    with pytest.raises(ValueError, match="threads=-1: expected 0 to 1024"):
        SimdExecutor(threads=-1)
    with pytest.raises(ValueError, match="affinity: CPU 4000 does not exist"):
        SimdExecutor(affinity=[4000])
    monkeypatch.setenv("VLA_SIMD_ISA", "sse9")
    with pytest.raises(ValueError, match="VLA_SIMD_ISA='sse9'"):
        SimdExecutor()
    monkeypatch.setenv("VLA_SIMD_ISA", "portable")
    assert SimdExecutor(threads=1).isa == "portable"


def test_weights_must_be_constants() -> None:
    builder = Builder()
    x, weight = (builder.input(n, (4, 4), DType.F32, Lifetime.QUERY) for n in ("x", "weight"))
    policy = compiled(builder, builder.linear(x, weight, name="y"))
    with pytest.raises(
        GraphError, match="linear 'y': weight is 'weight' of lifetime QUERY, expected a constant"
    ):
        SimdExecutor(threads=1).load(policy)


def test_axes_in_the_middle_are_copied(executor: SimdExecutor) -> None:
    rng = np.random.default_rng(2)
    builder = Builder()
    a, b = (builder.input(n, (2, rows, 3), DType.F32, Lifetime.QUERY) for n, rows in (("a", 4), ("b", 2)))
    whole = builder.concat([a, b], axis=1, name="whole")
    policy = compiled(builder, builder.slice(whole, axis=1, start=3, stop=5, name="part"))
    inputs = {
        "a": rng.normal(size=(2, 4, 3)).astype(np.float32),
        "b": rng.normal(size=(2, 2, 3)).astype(np.float32),
    }
    got = executor.load(policy).run(Lifetime.QUERY, inputs)["y"]
    assert np.array_equal(got, np.concatenate([inputs["a"], inputs["b"]], axis=1)[:, 3:5])
