"""What the blocks of a policy cost on two executors of this machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from vla_simd_ros.executors.base import Executor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.partition import cut_points, partition, single_blocks
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.hybrid.stage_costs import BlockCost, StageCosts
from vla_simd_ros.machine import cpu_model

_COPIED_BYTES = 16 << 20


STEPS = "steps"
"""The name under which solver steps stand among the blocks."""


def measure_costs(
    policy: InstructedPolicy,
    case: Case,
    prefix: Executor,
    suffix: Executor,
    repeats: int,
    say: Callable[[str], None] = lambda text: None,
) -> StageCosts:
    """Run every block alone on both executors, ``repeats`` times each after a first run, and take the median.

    The solver steps of a policy that iterates stand as one more block, which only the second executor runs.
    """
    compiled = policy.compiled
    blocks = []
    given = policy.inputs(case)
    possible = cut_points(compiled)
    for name, alone in single_blocks(compiled):
        prefix_s, results = _time(alone, prefix, given, repeats)
        suffix_s, _ = _time(alone, suffix, given, repeats)
        given |= results
        crossing = partition(compiled, name).boundary_bytes if name in possible else 0
        weights = _weights(alone, Lifetime.QUERY)
        blocks.append(BlockCost(name, prefix_s, suffix_s, weights, weights, crossing))
        say(f"{name}: {prefix_s * 1e3:.3f} ms on {prefix.isa}, {suffix_s * 1e3:.3f} ms on {suffix.isa}")
    if compiled.programs[Lifetime.STEP].ops:
        steps_s = _time_steps(policy, suffix, case, repeats)
        blocks.append(BlockCost(STEPS, math.inf, steps_s, 0, _weights(compiled, Lifetime.STEP), 0))
        say(f"{STEPS}: {steps_s * 1e3:.3f} ms on {suffix.isa}")
    return StageCosts(
        blocks=tuple(blocks),
        transfer_s=0.0,
        transfer_rate=_copy_rate(repeats),
        suffix_threads=max(1, suffix.threads),
        source=f"{policy.spec.type} on {cpu_model()}: {_described(prefix)}, then {_described(suffix)}",
    )


def _described(executor: Executor) -> str:
    return f"{executor.isa} with {executor.threads} threads"


def _weights(compiled: CompiledPolicy, lifetime: Lifetime) -> int:
    """Bytes of the constants of one program; those of the instruction's are not any block's."""
    return sum(tensor.nbytes for tensor in compiled.programs[lifetime].constants)


def _time(
    alone: CompiledPolicy, executor: Executor, values: Mapping[str, Array], repeats: int
) -> tuple[float, dict[str, Array]]:
    """Median seconds of the query program, its results copied out, and the results."""
    executable = executor.load(alone)
    episode, query = (
        alone.programs[lifetime].own_inputs(values) for lifetime in (Lifetime.EPISODE, Lifetime.QUERY)
    )
    executable.run(Lifetime.EPISODE, episode)
    results = executable.run(Lifetime.QUERY, query)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        executable.run(Lifetime.QUERY, query)
        times.append(time.perf_counter() - start)
    return statistics.median(times), results


def _copy_rate(repeats: int) -> float:
    """Bytes per second of a copy in memory, which is what a transfer between executors of one CPU is."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return _COPIED_BYTES / statistics.median(times)


def _time_steps(policy: InstructedPolicy, executor: Executor, case: Case, repeats: int) -> float:
    """Median seconds of all solver steps of a query together."""
    executable = executor.load(policy.compiled)
    times = []
    for _ in range(repeats + 1):
        query_done = 0.0
        for part in policy.parts(executable, case):
            if part.lifetime is Lifetime.QUERY:
                query_done = time.perf_counter()
        times.append(time.perf_counter() - query_done)
    return statistics.median(times[1:])
