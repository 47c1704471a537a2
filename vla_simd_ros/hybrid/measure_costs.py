"""What the blocks of a policy cost on two executors of this machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.executors.base import Executor, Starting
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.memory import plan_arena
from vla_simd_ros.graph.partition import cut_points, partition, single_blocks
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.graph.storage import plan_storage
from vla_simd_ros.hybrid.placement import Placement
from vla_simd_ros.hybrid.stage_costs import BlockCost, StageCosts
from vla_simd_ros.inference import Policy
from vla_simd_ros.machine import cpu_model

T = TypeVar("T")

_COPIED_BYTES = 16 << 20
_FIRST_RUNS = 2
"""The first one records a program for a device, those that follow replay it."""


STEPS = "steps"
"""The name under which solver or decoding steps stand among the blocks."""


def measure_costs(
    policy: InstructedPolicy,
    case: Case,
    prefix: Executor,
    suffix: Executor,
    repeats: int,
    say: Callable[[str], None] = lambda text: None,
    decoding: Policy | None = None,
    places: tuple[Placement, Placement] | None = None,
) -> StageCosts:
    """Run every block alone on both executors, ``repeats`` times each after two first runs, and take the
    median. Where results have to come from a device, a block's time ends when they are computed.

    The solver steps of a policy that iterates, or the decoding of action tokens one after the other, stand as
    one more block, which only the second executor runs. ``decoding`` is the same policy on it, with the
    instruction and the decoder that it will have: the passes that this takes count then, as many as they are
    for ``case``, unless the tokens spell no actions. Blocks run in ``places``, if given, as they will.
    """
    compiled = policy.compiled
    blocks = []
    given = policy.inputs(case)
    possible = cut_points(compiled)
    whole = held_bytes(compiled)
    deliveries: list[tuple[int, float]] = []
    sides = tuple(zip((prefix, suffix), places or (None, None), strict=True))
    for name, alone in single_blocks(compiled):
        (prefix_s, results, delivery_s), (suffix_s, _, _) = (
            _run_in(place, partial(_time, alone, executor, given, repeats)) for executor, place in sides
        )
        given |= results
        deliveries.append((sum(value.nbytes for value in results.values()), delivery_s))
        weights = weight_bytes(alone, Lifetime.QUERY)
        crossing, held = 0, (whole, 0)
        if name in possible:
            cut = partition(compiled, name)
            crossing, held = cut.boundary_bytes, (held_bytes(cut.prefix), held_bytes(cut.suffix))
        blocks.append(BlockCost(name, prefix_s, suffix_s, weights, weights, crossing, *held))
        say(f"{name}: {prefix_s * 1e3:.3f} ms on {prefix.isa}, {suffix_s * 1e3:.3f} ms on {suffix.isa}")
    if compiled.programs[Lifetime.STEP].ops:
        decoded_s = None if decoding is None else _time_decoding(decoding, case, repeats)
        steps_s = _time_steps(policy, suffix, case, repeats) if decoded_s is None else decoded_s
        blocks.append(BlockCost(STEPS, math.inf, steps_s, 0, weight_bytes(compiled, Lifetime.STEP), 0))
        say(f"{STEPS}: {steps_s * 1e3:.3f} ms on {suffix.isa}")
    transfer_s, transfer_rate = _transfer(deliveries, repeats)
    return StageCosts(
        blocks=tuple(blocks),
        transfer_s=transfer_s,
        transfer_rate=transfer_rate,
        whole_bytes=whole,
        suffix_threads=max(1, suffix.threads),
        source=f"{policy.spec.type} on {cpu_model()}: {_described(prefix)}, then {_described(suffix)}",
    )


def _run_in(place: Placement | None, work: Callable[[], T]) -> T:
    return work() if place is None else place.run(work)


def _described(executor: Executor) -> str:
    return f"{executor.isa} with {executor.threads} threads" if executor.threads else executor.isa


def weight_bytes(compiled: CompiledPolicy, lifetime: Lifetime) -> int:
    """Bytes of the constants of one program; those of the instruction's are not any block's."""
    return sum(tensor.nbytes for tensor in compiled.programs[lifetime].constants)


def held_bytes(compiled: CompiledPolicy) -> int:
    """Memory of one side: its constants and states, and the activations as an engine with one thread lays
    them out. What an executor needs besides, as for recordings, is not in it."""
    programs = [compiled.programs[lifetime] for lifetime in sorted(compiled.programs)]
    arena = plan_arena(list(plan_storage(programs).buffers.values()))
    states = {use.state for program in programs for use in program.states}
    return compiled.constant_bytes + sum(state.nbytes for state in states) + arena.nbytes


def _time(
    alone: CompiledPolicy, executor: Executor, values: Mapping[str, Array], repeats: int
) -> tuple[float, dict[str, Array], float]:
    """Median seconds of the query program, its results, and the seconds of their delivery; NaN where results
    are where they are wanted when the program has run."""
    executable = executor.load(alone)
    episode, query = (
        alone.programs[lifetime].own_inputs(values) for lifetime in (Lifetime.EPISODE, Lifetime.QUERY)
    )
    executable.run(Lifetime.EPISODE, episode)
    for _ in range(_FIRST_RUNS):
        results = executable.run(Lifetime.QUERY, query)
    if not isinstance(executable, Starting):
        return _median(lambda: executable.run(Lifetime.QUERY, query), repeats), results, math.nan
    computed_s = _median(lambda: executable.again(Lifetime.QUERY), repeats)
    return computed_s, results, _median(lambda: executable.deliver(Lifetime.QUERY).wait(), repeats)


def _median(work: Callable[[], object], repeats: int) -> float:
    """Of the seconds that ``work`` takes."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _transfer(deliveries: Sequence[tuple[int, float]], repeats: int) -> tuple[float, float]:
    """Seconds of any transfer, and bytes per second beyond: the line through the deliveries of all blocks, or
    that of a copy in memory where there were none."""
    measured = [(size, seconds) for size, seconds in deliveries if size and math.isfinite(seconds)]
    sizes = np.array([size for size, _ in measured], np.float64)
    seconds = np.array([taken for _, taken in measured], np.float64)
    if not len(sizes) or np.ptp(sizes) == 0.0:
        return 0.0, _copy_rate(repeats)
    slope, start = np.polyfit(sizes, seconds, 1)
    if slope <= 0.0:  # as fast whatever the size, as far as these tell
        return float(np.median(seconds)), _copy_rate(repeats)
    return max(0.0, float(start)), 1.0 / float(slope)


def _copy_rate(repeats: int) -> float:
    """Bytes per second of a copy in memory, which is what a transfer between executors of one CPU is."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)
    return _COPIED_BYTES / _median(lambda: np.copyto(target, source), repeats)


def _time_decoding(policy: Policy, case: Case, repeats: int) -> float | None:
    """Median seconds of decoding; None where there is nothing to decode, or no actions come of it."""
    if policy.action_tokens is None:
        return None
    times = []
    for _ in range(_FIRST_RUNS + repeats):
        request = policy.request(case.observation)
        outputs = policy.executable.run(Lifetime.QUERY, request.values)
        start = time.perf_counter()
        try:
            policy.actions(policy.executable, request, outputs)
        except DecodingError:
            return None
        times.append(time.perf_counter() - start)
    return statistics.median(times[_FIRST_RUNS:])


def _time_steps(policy: InstructedPolicy, executor: Executor, case: Case, repeats: int) -> float:
    """Median seconds of all steps of a query together."""
    executable = executor.load(policy.compiled)
    times = []
    for _ in range(repeats + 1):
        query_done = 0.0
        for part in policy.parts(executable, case):
            if part.lifetime is Lifetime.QUERY:
                query_done = time.perf_counter()
        times.append(time.perf_counter() - query_done)
    return statistics.median(times[1:])
