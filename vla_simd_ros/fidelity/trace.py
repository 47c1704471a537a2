"""Tensor by tensor: where an executor first departs from the float64 run of the same programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.fidelity.measure import Distance, allowed, distance
from vla_simd_ros.fidelity.observations import RawObservation
from vla_simd_ros.fidelity.programs import TokenIds, run_programs
from vla_simd_ros.graph.ir import DType, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy, Program

# One float32 run is one sample of what rounding does; another may be this many times as far off.
_LENIENCE = 2.0


@dataclass(frozen=True)
class TraceEntry:
    """One tensor: how far the executor and a plain float32 run are from the float64 run."""

    tensor: Tensor
    error: Distance
    departure: Distance

    @property
    def departs(self) -> bool:
        """Whether the error is more than rounding explains."""
        # Written so that an error that is not a number departs.
        return not self.error.relative <= _LENIENCE * allowed(self.departure.relative)


def trace(
    executor: Executor, compiled: CompiledPolicy, ids: TokenIds | None, observation: RawObservation
) -> Iterator[TraceEntry]:
    """Every tensor that the runtime programs compute, in execution order."""
    exposed = _expose(compiled)
    runs = [executor.load(exposed), ReferenceExecutor(np.float64).load(exposed)]
    runs.append(ReferenceExecutor(np.float32).load(exposed))
    for run in runs:
        run_programs(run, exposed, ids, observation)
    for program in exposed.programs.values():
        for op in program.ops:
            if op.output.dtype is DType.F32:
                actual, expected, single = (run.tensor(op.output) for run in runs)
                yield TraceEntry(op.output, distance(actual, expected), distance(single, expected))


def first_departure(entries: list[TraceEntry]) -> TraceEntry | None:
    """The first entry that departs."""
    return next((entry for entry in entries if entry.departs), None)


def _expose(compiled: CompiledPolicy) -> CompiledPolicy:
    """The same programs, keeping every tensor they compute."""

    def keep_all(program: Program) -> Program:
        return replace(program, provides=tuple(op.output for op in program.ops))

    return replace(compiled, programs={k: keep_all(program) for k, program in compiled.programs.items()})
