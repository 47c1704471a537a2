"""The comparison behind ``vla_simd check``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.measure import BOUND, Distance, allowed, distance
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.fidelity.references import make_reference
from vla_simd_ros.fidelity.trace import TraceEntry, trace
from vla_simd_ros.inference import Policy

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TokenReport:
    """Chunks of action tokens beside those of the reference in float64: how many are the same.

    Where a chunk is another one, ``margin`` is by how much the reference prefers the first of its own tokens
    that the engine did not take, relative to the largest score: the largest of all such chunks. It is no
    error where rounding may have made it.
    """

    chunks: int
    same: int
    margin: float

    def passed(self, bound: float) -> bool:
        """Whether scores that are off by ``bound`` explain every chunk."""
        return self.margin <= 2 * bound


@dataclass(frozen=True)
class OutputReport:
    """One output over all observations: distances from the reference in float32 and in float64. For scores of
    action tokens also what was decoded from them."""

    name: str
    shape: tuple[int, ...]
    largest: float
    error: Distance
    error_float64: Distance
    departure: Distance
    least_bound: float = BOUND
    tokens: TokenReport | None = None

    @property
    def bound(self) -> float:
        """What the relative errors may be."""
        return allowed(self.departure.relative, self.least_bound)

    @property
    def passed(self) -> bool:
        """Whether the errors are within the bound; not for values that are no finite numbers.

        A float32 reference that itself departs by more than the bound is no measure of others: then the
        departure of the engine from float64 has to be within the factor of the reference's.
        """
        if not math.isfinite(self.error_float64.absolute):
            return False
        if self.tokens is not None and not self.tokens.passed(self.bound):
            return False
        blurred = self.departure.relative > self.least_bound
        return self.error_float64.relative <= self.bound and (blurred or self.error.relative <= self.bound)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "bound": self.bound, "passed": self.passed}


def compare(
    checkpoint: Checkpoint,
    executor: Executor,
    reference: str,
    instruction: str,
    cases: list[Case],
    progress: Callable[[str], None],
    bound: float = BOUND,
) -> OutputReport:
    """Actions of ``executor`` against those of ``reference``, both given the same ``cases``.

    ``progress`` is told what runs next; ``bound`` is allowed at least. Raises
    `UnavailableReferenceError`, `CheckpointError`.
    """
    progress(f"engine, {len(cases)} observations")
    ours = _predict_with(executor, checkpoint, instruction, cases)
    expected = {}
    for dtype in (np.float32, np.float64):
        progress(f"reference {reference} in {np.dtype(dtype).name}")
        expected[dtype] = _expected(reference, checkpoint, instruction, dtype, cases)
    single, double = expected[np.float32], expected[np.float64]
    return OutputReport(
        name="action",
        shape=ours.shape[1:],
        largest=float(np.abs(double).max()),
        error=distance(ours, single),
        error_float64=distance(ours, double),
        departure=distance(single, double),
        least_bound=bound,
    )


def trace_tensors(
    checkpoint: Checkpoint,
    executor: Executor,
    instruction: str,
    case: Case,
    bound: float = BOUND,
) -> list[TraceEntry]:
    """Every tensor of one query against the float64 run of the same programs."""
    return list(trace(executor, instruct(checkpoint, instruction), case, bound))


def _predict_with(executor: Executor, checkpoint: Checkpoint, instruction: str, cases: list[Case]) -> Array:
    policy = Policy(checkpoint, executor)
    policy.set_instruction(instruction)
    return np.stack([_actions(policy, case) for case in cases])


def _expected(
    reference: str, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]], cases: list[Case]
) -> Array:
    """The reference's actions; its weights are gone when it returns."""
    model = make_reference(reference, checkpoint, instruction, dtype)
    return np.stack([model.predict(case) for case in cases])


def _actions(policy: Policy, case: Case) -> Array:
    query = policy.query(case.observation, noise=case.noise, num_steps=case.num_steps, prefix=case.prefix)
    return query.actions
