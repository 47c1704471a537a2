from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Options, make_checkpoint
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.int8_error import Int8Report, int8_error
from vla_simd_ros.fidelity.measure import Distance, distance
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.int8_groups import Int8GroupError

SIZES: dict[str, Any] = {
    "dim_model": 32, "heads": 2, "feedforward": 48, "chunk_size": 4, "encoder_layers": 1, "decoder_layers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("int8") / "act"
    make_checkpoint("act", folder, Options(seed=1, cameras=(), env_state_dim=3, sizes=SIZES))
    return load_checkpoint(folder)


def report(
    checkpoint: Checkpoint,
    int8: str,
    executor: Any = None,
    max_rms: float = 0.2,
    reference: str = "float64",
    single_layers: bool = True,
) -> Int8Report:
    said: list[str] = []
    cases = random_cases(checkpoint, 2, 0)
    executor = executor or ReferenceExecutor()
    return int8_error(
        checkpoint, executor, int8, reference, "", cases, said.append, max_rms, single_layers=single_layers
    )


def test_each_group_alone_and_all_together(checkpoint: Checkpoint) -> None:
    result = report(checkpoint, "encoder,head")
    assert [row.group for row in result.groups] == ["encoder.attention", "encoder.ffn", "head"]
    assert (result.together.group, result.together.layers) == ("together", 6)
    assert result.together.layers == sum(row.layers for row in result.groups) == len(result.layers)
    assert all(1e-5 < row.from_fp32.rms < 0.1 for row in (*result.groups, result.together))
    assert result.fp32 == Distance(0, 0, 0), "the executor is the reference here"
    assert result.passed


def test_a_group_is_what_the_policy_computes_with_it(checkpoint: Checkpoint) -> None:
    result = report(checkpoint, "head")
    answers = []
    for int8 in ("head", ""):
        policy = instruct(checkpoint, "", int8)
        executable = ReferenceExecutor().load(policy.compiled)
        cases = random_cases(checkpoint, 2, 0)
        answers.append(np.stack([policy.run(executable, case)["action"] for case in cases]))
    assert result.together.from_reference == distance(*answers)


def test_layers_come_worst_first(checkpoint: Checkpoint) -> None:
    layers = report(checkpoint, "all").layers
    errors = [layer.error.rms for layer in layers]
    assert errors == sorted(errors, reverse=True)
    assert {layer.group for layer in layers} >= {"encoder.attention", "head", "decoder.ffn"}
    assert len({layer.layer for layer in layers}) == len(layers)


def test_the_engine_adds_what_the_definition_says(checkpoint: Checkpoint) -> None:
    engine, exact = (report(checkpoint, "all", e) for e in (SimdExecutor(threads=1), ReferenceExecutor()))
    assert 0 < engine.fp32.relative < 2e-6
    for ours, expected in zip(engine.groups, exact.groups, strict=True):
        assert ours.from_reference.rms == pytest.approx(expected.from_reference.rms, rel=0.3)


def test_the_engine_in_exact_fp32_stands_for_float64(checkpoint: Checkpoint) -> None:
    """To the digits that int8 leaves: the executor here is float64 itself, so fp32 is what is between."""
    double, single = (report(checkpoint, "all", reference=name) for name in ("float64", "engine"))
    assert 0 < single.fp32.relative < 2e-6 and double.fp32.relative == 0
    for near, exact in zip((*single.groups, single.together), (*double.groups, double.together), strict=True):
        assert near.from_fp32 == exact.from_fp32
        assert near.from_reference.rms == pytest.approx(exact.from_reference.rms, rel=1e-3)


def test_layers_need_not_be_tried_one_by_one(checkpoint: Checkpoint) -> None:
    groups = report(checkpoint, "all", single_layers=False)
    assert groups.layers == [] and groups.groups == report(checkpoint, "all").groups


def test_the_verdict_is_on_everything_together(checkpoint: Checkpoint) -> None:
    result = report(checkpoint, "head")
    rms = result.together.from_reference.rms
    assert dataclasses.replace(result, max_rms=rms).passed
    assert not dataclasses.replace(result, max_rms=rms * 0.99).passed
    broken = dataclasses.replace(result.together, from_reference=Distance(math.nan, math.nan, math.nan))
    assert not dataclasses.replace(result, together=broken).passed
    assert not dataclasses.replace(result, max_rms=rms * 0.99).to_json()["passed"]


@pytest.mark.parametrize("int8", ["text", "encoder,decoder.conv"])
def test_unknown_groups_are_refused(checkpoint: Checkpoint, int8: str) -> None:
    with pytest.raises(Int8GroupError, match="is unknown, this policy has: encoder"):
        report(checkpoint, int8)


def test_nothing_in_int8_is_nothing_to_report(checkpoint: Checkpoint) -> None:
    class Slow(ReferenceExecutor):
        def time_ms(self, op: Any) -> float:
            return 2.0 if op.attrs.get("precision") else 1.0

    with pytest.raises(Int8GroupError, match="'auto' leaves everything in fp32, expected some of"):
        report(checkpoint, "auto", Slow())
