"""Both sides of every cut against the uncut program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.observations import random_observations
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.graph.partition import Partition, cut_points, partition, query_blocks, single_blocks
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import observation_inputs

CAMERAS = (Camera("front", 64, 96), Camera("wrist", 64, 96))
SIZES = {"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2}


@pytest.fixture(scope="module", params=["act", "impact"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> InstructedPolicy:
    folder = tmp_path_factory.mktemp("checkpoint") / "policy"
    make_checkpoint(request.param, folder, Options(cameras=CAMERAS, sizes=SIZES))
    return instruct(load_checkpoint(folder), "pick up the red cube")


@pytest.fixture(scope="module")
def values(policy: InstructedPolicy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Array]:
    folder = tmp_path_factory.mktemp("observations") / "policy"
    make_checkpoint(policy.spec.type, folder, Options(cameras=CAMERAS, sizes=SIZES))
    (observation,) = random_observations(load_checkpoint(folder), 1, seed=3)
    found = observation_inputs(policy.spec, observation)
    return found if policy.token_ids is None else found | {"token_ids": policy.token_ids}


def run(compiled: CompiledPolicy, executor: Executor, values: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the episode and the query program, which take what they want of ``values``."""
    executable = executor.load(compiled)
    outputs: dict[str, Array] = {}
    for lifetime in (Lifetime.EPISODE, Lifetime.QUERY):
        names = compiled.programs[lifetime].inputs
        outputs |= executable.run(lifetime, {name: values[name] for name in names})
    return outputs


def run_both(
    cut: Partition, first: Executor, second: Executor, values: Mapping[str, Array]
) -> dict[str, Array]:
    crossed = run(cut.prefix, first, values)
    assert set(crossed) >= {tensor.name for tensor in cut.boundary}
    return crossed | run(cut.suffix, second, {**values, **crossed})


def cuts(compiled: CompiledPolicy) -> Iterator[Partition]:
    for block in cut_points(compiled):
        yield partition(compiled, block)


def test_every_cut_gives_the_same_bits_on_one_executor(
    policy: InstructedPolicy, values: dict[str, Array]
) -> None:
    executor = SimdExecutor(threads=1)
    whole = run(policy.compiled, executor, values)["action"]
    for cut in cuts(policy.compiled):
        np.testing.assert_array_equal(run_both(cut, executor, executor, values)["action"], whole)


def test_every_cut_agrees_across_executors(policy: InstructedPolicy, values: dict[str, Array]) -> None:
    engine, reference = SimdExecutor(threads=1), ReferenceExecutor(np.float32)
    whole = run(policy.compiled, engine, values)["action"]
    for cut in list(cuts(policy.compiled))[::4]:
        mixed = run_both(cut, reference, engine, values)["action"]
        assert distance(mixed, whole).relative < 2e-5


def test_every_operation_is_on_one_side(policy: InstructedPolicy) -> None:
    query = policy.compiled.programs[Lifetime.QUERY]
    for cut in cuts(policy.compiled):
        sides = [side.programs[Lifetime.QUERY].ops for side in (cut.prefix, cut.suffix)]
        assert all(sides)
        assert sorted(op.output.name for side in sides for op in side) == sorted(
            op.output.name for op in query.ops
        )


def test_between_encoder_layers_only_the_hidden_state_and_positions_cross(policy: InstructedPolicy) -> None:
    cut = partition(policy.compiled, "encoder.0")
    (hidden,) = (tensor for tensor in cut.boundary if tensor.block == "encoder.0")
    others = [tensor for tensor in cut.boundary if tensor is not hidden]
    assert cut.boundary_bytes == hidden.nbytes + sum(tensor.nbytes for tensor in others)
    assert hidden.shape[1] == SIZES["dim_model"]
    assert cut.blocks[0][-1] == "encoder.0"
    assert cut.blocks[1][0] == "encoder.1"


def test_only_what_a_side_reads_is_computed_for_the_instruction(policy: InstructedPolicy) -> None:
    if policy.token_ids is None:
        assert not any(cut.prefix.programs[Lifetime.EPISODE].ops for cut in cuts(policy.compiled))
        return
    late = partition(policy.compiled, "encoder.1")
    blocks = {op.block for op in late.suffix.programs[Lifetime.EPISODE].ops}
    assert "film" not in blocks
    assert "film" in {op.block for op in late.prefix.programs[Lifetime.EPISODE].ops}


def tiny() -> CompiledPolicy:
    """Two blocks and solver steps that read a result of each, and an output that the first one gives."""
    b = Builder()
    x = b.input("x", (2, 3), DType.F32, Lifetime.QUERY)
    sample = b.input("sample", (2, 3), DType.F32, Lifetime.STEP)
    with b.block("first"):
        one = b.activation("relu", x, name="one")
        b.output("early", one)
    with b.block("second"):
        two = b.binary("mul", one, x, name="two")
    with b.block("steps"):
        b.output("sample", b.add(b.add(sample, one, name="a"), two, name="b"))
    return compile_graph(b.graph(), FoldCache())


def test_solver_steps_stay_behind_the_cut_and_get_what_they_read() -> None:
    cut = partition(tiny(), "first")
    assert not cut.prefix.programs[Lifetime.STEP].ops
    assert list(cut.suffix.programs[Lifetime.QUERY].inputs) == ["x", "first.one"]
    assert set(cut.prefix.outputs) == {"first.one", "early"}
    assert set(cut.suffix.outputs) == {"sample"}
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    crossed = run(cut.prefix, ReferenceExecutor(np.float32), {"x": x})
    suffix = ReferenceExecutor(np.float32).load(cut.suffix)
    suffix.run(Lifetime.EPISODE, {})
    suffix.run(Lifetime.QUERY, {"x": x, "first.one": crossed["first.one"]})
    result = suffix.run(Lifetime.STEP, {"sample": np.ones((2, 3), np.float32)})
    positive = np.maximum(x, 0)
    np.testing.assert_array_equal(result["sample"], 1 + positive + positive * x)


def test_a_cut_before_the_solver_steps_leaves_them_alone() -> None:
    cut = partition(tiny(), "second")
    assert not cut.suffix.programs[Lifetime.QUERY].ops
    assert {tensor.name for tensor in cut.boundary} == {"first.one", "second.two"}


def test_single_blocks_in_turn_are_the_whole_policy(
    policy: InstructedPolicy, values: dict[str, Array]
) -> None:
    executor = SimdExecutor(threads=1)
    given = dict(values)
    names = []
    for name, alone in single_blocks(policy.compiled):
        given |= run(alone, executor, given)
        names.append(name)
    assert tuple(names) == query_blocks(policy.compiled)
    np.testing.assert_array_equal(given["action"], run(policy.compiled, executor, values)["action"])


def test_solver_steps_are_in_no_single_block() -> None:
    first, second = (alone for _, alone in single_blocks(tiny()))
    assert set(first.outputs) == {"first.one", "early"}
    assert set(second.outputs) == {"second.two"}
    assert list(second.programs[Lifetime.QUERY].inputs) == ["x", "first.one"]


@pytest.mark.parametrize("block", ["steps", "elsewhere"])
def test_a_cut_that_cannot_be_made_is_refused(block: str) -> None:
    with pytest.raises(GraphError, match=f"cannot be cut after '{block}', expected one of: first, second"):
        partition(tiny(), block)


def test_a_policy_of_one_block_has_no_cut() -> None:
    b = Builder()
    x = b.input("x", (2, 3), DType.F32, Lifetime.QUERY)
    b.output("action", b.activation("relu", x, name="y"))
    compiled = compile_graph(b.graph(), FoldCache())
    with pytest.raises(GraphError, match="a policy of more than one block"):
        partition(compiled, "")
