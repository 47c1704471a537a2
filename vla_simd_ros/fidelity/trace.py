"""Tensor by tensor: where an executor first departs from the float64 run of the same programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.measure import BOUND, Distance, allowed, distance
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.ir import DType, Tensor
from vla_simd_ros.graph.state import APPEND

# One float32 run is one sample of what rounding does; another may be this many times as far off.
_LENIENCE = 2.0


@dataclass(frozen=True)
class TraceEntry:
    """One tensor, after which step (from 1) for one of the step program: how far the executor and a plain
    float32 run are from the float64 run."""

    tensor: Tensor
    error: Distance
    departure: Distance
    bound: float = BOUND
    step: int | None = None

    @property
    def name(self) -> str:
        """The tensor's name, and the step."""
        return self.tensor.name if self.step is None else f"{self.tensor.name} @{self.step}"

    @property
    def departs(self) -> bool:
        """Whether the error is more than rounding explains."""
        # Written so that an error that is not a number departs.
        return not self.error.relative <= _LENIENCE * allowed(self.departure.relative, self.bound)


def trace(
    executor: Executor, policy: InstructedPolicy, case: Case, bound: float = BOUND
) -> Iterator[TraceEntry]:
    """Every tensor that the runtime programs compute, in execution order, those of steps after each step."""
    policy = policy.keeping_every_tensor()
    executors = (executor, ReferenceExecutor(np.float64), ReferenceExecutor(np.float32))
    runs = [each.load(policy.compiled) for each in executors]
    for part, *_ in zip(*(policy.parts(run, case) for run in runs), strict=True):
        for op in policy.compiled.programs[part.lifetime].ops:
            if op.output.dtype is DType.F32 and op.kind != APPEND:
                actual, expected, single = (run.tensor(op.output) for run in runs)
                error, departure = distance(actual, expected), distance(single, expected)
                yield TraceEntry(op.output, error, departure, bound, part.step)


def first_departure(entries: Iterable[TraceEntry]) -> TraceEntry | None:
    """The first entry that departs."""
    return next((entry for entry in entries if entry.departs), None)
