"""Scores and tokens of an engine beside those of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case, random_cases
from vla_simd_ros.fidelity.check import TokenReport
from vla_simd_ros.fidelity.check_tokens import compare_tokens, spell
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.int8_error import int8_error
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.fidelity.references import make_reference
from vla_simd_ros.fidelity.trace import first_departure, trace
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import Policy

INSTRUCTION = "go there"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder: Path = tmp_path_factory.mktemp("checkpoint") / "tokens"
    make_checkpoint("impact_tokens", folder, small_options("impact_tokens"))
    return load_checkpoint(folder)


@pytest.fixture(scope="module")
def cases(checkpoint: Checkpoint) -> list[Case]:
    return random_cases(checkpoint, 2, 0)


class Disturbed(ReferenceExecutor):
    """Adds something to the scores of every pass."""

    def __init__(self, added: Array) -> None:
        super().__init__()
        self.added = added

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Any:
        return _Disturbed(super().load(compiled, None), self)


class _Disturbed:
    def __init__(self, inner: Executable, executor: Disturbed) -> None:
        self._inner, self._executor = inner, executor

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self._inner.run(lifetime, inputs)
        return {name: value + self._executor.added for name, value in outputs.items()}

    def tensor(self, tensor: Tensor) -> Array:
        return self._inner.tensor(tensor)


def compared(checkpoint: Checkpoint, executor: Any, cases: list[Case]) -> tuple[Any, list[Case]]:
    return compare_tokens(checkpoint, executor, "float64", INSTRUCTION, cases, lambda text: None)


def test_the_engine_gives_the_scores_and_tokens(checkpoint: Checkpoint, cases: list[Case]) -> None:
    report, read = compared(checkpoint, SimdExecutor(threads=1), cases)
    assert report.passed and (report.name, report.shape) == ("scores", (30, 21))
    assert report.tokens == TokenReport(2, 2, 0.0)
    assert 0 < report.error_float64.relative < 2e-6
    policy = Policy(checkpoint, ReferenceExecutor())
    policy.set_instruction(INSTRUCTION)
    decoded = policy.query(cases[0].observation).decoded
    assert decoded is not None and read[0].tokens == decoded.tokens[:-1]


def test_scores_that_are_off_are_noticed(checkpoint: Checkpoint, cases: list[Case]) -> None:
    """By ever so little in one token's score, which changes no chunk."""
    added = np.zeros(21)
    added[4] = 1e-3
    report, _ = compared(checkpoint, Disturbed(added), cases[:1])
    assert not report.passed and report.error.absolute == pytest.approx(1e-3, rel=1e-2)
    assert report.tokens is not None and report.tokens.same == 1


def test_other_tokens_are_noticed(checkpoint: Checkpoint, cases: list[Case]) -> None:
    added = np.zeros(21)
    added[4] = 100.0
    report, _ = compared(checkpoint, Disturbed(added), cases[:1])
    assert report.tokens is not None
    assert report.tokens.same == 0 and report.tokens.margin > 1e-3 and not report.tokens.passed(report.bound)


def test_tokens_that_rounding_may_have_changed_are_no_error() -> None:
    assert TokenReport(4, 3, 1.9e-6).passed(1e-6)
    assert not TokenReport(4, 3, 2.1e-6).passed(1e-6)


def test_a_reference_must_tell_scores(checkpoint: Checkpoint, cases: list[Case]) -> None:
    with pytest.raises(UnavailableReferenceError, match="reference 'lerobot' tells no scores"):
        spell(object(), "lerobot", cases)
    reference = make_reference("float64", checkpoint, INSTRUCTION, np.float64)
    assert len(spell(reference, "float64", cases).tokens[0]) == 30


def test_every_tensor_of_every_token_is_traced(checkpoint: Checkpoint, cases: list[Case]) -> None:
    _, read = compared(checkpoint, SimdExecutor(threads=1), cases[:1])
    policy = instruct(checkpoint, INSTRUCTION)
    entries = list(trace(SimdExecutor(threads=1), policy, read[0]))
    assert first_departure(entries) is None
    assert {entry.step for entry in entries if entry.tensor.lifetime is Lifetime.STEP} == set(range(1, 31))
    assert not [entry for entry in entries if entry.tensor.name.endswith("kept")]


def test_int8_is_measured_in_scores(checkpoint: Checkpoint, cases: list[Case]) -> None:
    engine = SimdExecutor(threads=1)
    report = int8_error(checkpoint, engine, "prefix", "float64", INSTRUCTION, cases, lambda text: None)
    assert report.fp32.rms < 1e-5 < report.together.from_reference.rms < 0.05


@pytest.mark.needs_torch
def test_pytorch_gives_the_same_scores_and_tokens(checkpoint: Checkpoint, cases: list[Case]) -> None:
    pytest.importorskip("torch")
    report, _ = compare_tokens(
        checkpoint, ReferenceExecutor(), "torch", INSTRUCTION, cases[:1], lambda text: None
    )
    assert report.tokens == TokenReport(1, 1, 0.0) and report.error_float64.relative < 2e-7
