"""A comparison from start to end: make the runners, check that they agree, time them in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vla_simd_ros.benchmarks.agreement import TOLERANCES, check_agreement
from vla_simd_ros.benchmarks.backend import (
    OURS,
    REFERENCE,
    RUNNERS,
    BenchmarkError,
    RunnerSpec,
    Setup,
    check_peers,
)
from vla_simd_ros.benchmarks.child import ChildRunner
from vla_simd_ros.benchmarks.co_runner import CoRun, measure_co_run
from vla_simd_ros.benchmarks.decoding import DecodingSummary
from vla_simd_ros.benchmarks.interleave import Plan, Visit, measure
from vla_simd_ros.benchmarks.isa_limit import limiting_variables
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.sensors import SensorWatch
from vla_simd_ros.benchmarks.soak import Soak, check_soak, summarize_soak
from vla_simd_ros.benchmarks.statistics import TAIL_QUERIES, Comparison, Summary, compare, summarize
from vla_simd_ros.benchmarks.tail import Tail, find_tail
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.graph.int8 import FP32, INT8
from vla_simd_ros.graph.ir import Array

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case

Say = Callable[[str], None]

_PROFILE_RUNS = 9
_CHECKED = 2  # cases; the reference takes its time


@dataclass(frozen=True)
class Options:
    """What to measure. With ``settings.threads`` of 0 the engine chooses; every peer then gets as many.
    ``hold_peers`` holds those that allow it to the engine's instruction set. ``steps`` are those of a query,
    None for a policy of one pass. The engine decodes action tokens with ``decoder``, and in turns with that
    with each of ``decoders``."""

    checkpoint: str
    peers: tuple[str, ...]
    plan: Plan
    warmup: int
    instruction: str
    settings: EngineSettings = EngineSettings()  # noqa: RUF009 -- immutable
    int8: str = ""
    hold_peers: bool = False
    soak_s: float = 0.0
    co_runner: bool = False
    profile: bool = False
    steps: int | None = None
    decoder: DecoderOptions = DEFAULT_OPTIONS
    decoders: tuple[DecoderOptions, ...] = ()


@dataclass(frozen=True)
class RunnerResult:
    """One runner: all its times by block, their summary, and its departure from the reference. ``precision``
    is "int8" if anything is computed in int8. ``programs_ms`` are median times by program, those of all steps
    together."""

    runner: str
    precision: str
    summary: Summary
    blocks_ms: list[list[float]]
    departure: float
    details: Mapping[str, str]
    programs_ms: Mapping[str, float] = field(default_factory=dict)
    decoding: DecodingSummary | None = None


@dataclass(frozen=True)
class BenchResult:
    """All runners, this engine first; ``int8`` are its groups of layers in int8, with commas; ``comparisons``
    holds each peer's time over this engine's, ``decoders`` that of the engine with other decoders; ``tail``
    are this engine's slow queries, of many enough."""

    isa: str
    int8: str
    threads: int
    runners: list[RunnerResult]
    comparisons: dict[str, Comparison]
    soak: Soak | None
    co_run: CoRun | None
    profile: list[OpTime] | None
    decoders: dict[str, Comparison] = field(default_factory=dict)
    tail: Tail | None = None

    def fastest_peer(self, precision: str = FP32) -> str | None:
        """The peer of the smallest median time among those that compute in this precision."""
        peers = [
            result
            for result in self.runners
            if result.runner in self.comparisons and result.precision == precision
        ]
        return min(peers, key=lambda peer: peer.summary.median_ms).runner if peers else None

    def speedup_vs_fastest_peer(self, precision: str = FP32) -> float | None:
        """Median within-block ratio of the fastest such peer's time to this engine's."""
        peer = self.fastest_peer(precision)
        return self.comparisons[peer].ratio if peer else None


def check_options(options: Options) -> None:
    """Raises ``BenchmarkError`` for what cannot be measured, before anything is loaded."""
    names = [str(decoder) for decoder in options.decoders]
    if len(set(names)) < len(names):
        raise BenchmarkError(f"decoders {', '.join(names)}: one is given more than once")
    check_peers(list(options.peers))
    if options.hold_peers:
        limiting_variables(options.settings.isa)
    if options.soak_s:
        check_soak(options.soak_s)


def run_bench(
    options: Options,
    cases: Sequence[Case],
    say: Say,
    registry: Mapping[str, RunnerSpec] = RUNNERS,
) -> BenchResult:
    """Measure, telling ``say`` what happens.

    Raises ``BenchmarkError`` for a runner that cannot be made or fails, and ``DisagreementError`` for one
    whose actions differ from the reference; then nothing is timed.
    """
    check_options(options)
    registry = {**registry, **_decoder_runners(options, registry[OURS])}
    with ExitStack() as stack:
        expected = _expected(options, cases, say, registry)
        runners, threads = _start(options, cases, say, registry, stack)
        precisions = {name: registry[name].precision for name in runners}
        if runners[OURS].details["int8"]:
            precisions |= dict.fromkeys((OURS, *map(str, options.decoders)), INT8)
        tolerances = {
            name: registry[name].tolerance or TOLERANCES[precision] for name, precision in precisions.items()
        }
        departures = _check(runners, tolerances, expected, say)
        for name, runner in runners.items():
            say(f"{name}: {options.warmup} queries to warm up")
            runner.time_queries(0, options.warmup)
        times = measure(runners, options.plan, _announce(say, options.plan))
        programs = {name: runner.programs(options.plan.queries) for name, runner in runners.items()}
        decodings = {name: runner.decoding(options.plan.queries) for name, runner in runners.items()}
        ours = runners[OURS]
        tail = _tail(ours, times[OURS])
        soak = _soak(ours, options.soak_s, say) if options.soak_s else None
        co_run = _co_run(ours, options.plan, say) if options.co_runner else None
        profile = ours.profile(_PROFILE_RUNS) if options.profile else None
        results = [
            RunnerResult(
                name,
                precisions[name],
                summarize([ms for block in times[name] for ms in block]),
                times[name],
                departures[name],
                runner.details,
                programs[name],
                decodings[name],
            )
            for name, runner in runners.items()
        ]
        comparisons = {name: compare(times[name], times[OURS]) for name in runners if name != OURS}
        peers, decoders = (
            {name: found for name, found in comparisons.items() if (name in options.peers) == is_peer}
            for is_peer in (True, False)
        )
        isa, int8 = (ours.details[name] for name in ("isa", "int8"))
        return BenchResult(isa, int8, threads, results, peers, soak, co_run, profile, decoders, tail)


def _start(
    options: Options,
    cases: Sequence[Case],
    say: Say,
    registry: Mapping[str, RunnerSpec],
    stack: ExitStack,
) -> tuple[dict[str, ChildRunner], int]:
    """The runners' processes, this engine's first: it settles the number of threads."""
    runners: dict[str, ChildRunner] = {}
    settings = options.settings
    decoders = {OURS: options.decoder, **{str(decoder): decoder for decoder in options.decoders}}
    for name in (*decoders, *options.peers):
        say(f"{name}: preparing")
        decoder, held_to = decoders.get(name, options.decoder), _held_to(options, name)
        setup = Setup(options.checkpoint, options.instruction, settings, options.int8, decoder, held_to)
        runners[name] = stack.enter_context(
            ChildRunner(name, registry[name].factory, setup, cases, _wait(say, name))
        )
        settings = settings.but(threads=settings.threads or int(runners[name].details["threads"]))
    return runners, settings.threads


def _held_to(options: Options, runner: str) -> str:
    return options.settings.isa if options.hold_peers and runner in options.peers else ""


def _decoder_runners(options: Options, ours: RunnerSpec) -> dict[str, RunnerSpec]:
    """This engine with each decoder; tokens that are not the greedy ones may be anywhere."""
    decoders = {OURS: options.decoder, **{str(decoder): decoder for decoder in options.decoders}}
    return {
        name: replace(ours, tolerance=math.inf)
        if decoder.decoder == "early_exit" or decoder.max_passes
        else ours
        for name, decoder in decoders.items()
    }


def _expected(
    options: Options, cases: Sequence[Case], say: Say, registry: Mapping[str, RunnerSpec]
) -> list[Array]:
    """The reference's answers, before there are runners: in float64 a large policy takes much memory."""
    say(f"{REFERENCE}: {_CHECKED} queries")
    setup = Setup(options.checkpoint, options.instruction, EngineSettings())
    factory = registry[REFERENCE].factory
    with ChildRunner(REFERENCE, factory, setup, cases, _wait(say, REFERENCE)) as reference:
        return reference.answers(_CHECKED)


def _check(
    runners: Mapping[str, ChildRunner],
    tolerances: Mapping[str, float],
    expected: Sequence[Array],
    say: Say,
) -> dict[str, float]:
    say(f"checking the outputs of {', '.join(runners)} against the {REFERENCE}")
    answers = {name: runner.answers(_CHECKED) for name, runner in runners.items()}
    departures = check_agreement(answers, expected, tolerances)
    for name, error in departures.items():
        say(f"{name}: maximum absolute error {error:.1e} of the largest action")
    return departures


def _tail(runner: ChildRunner, blocks_ms: Sequence[Sequence[float]]) -> Tail | None:
    times = [ms for block in blocks_ms for ms in block]
    return find_tail(times, runner.disturbances(len(times))) if len(times) >= TAIL_QUERIES else None


def _soak(runner: ChildRunner, seconds: float, say: Say) -> Soak:
    say(f"{runner.name}: {seconds:g} s of queries without pause")
    with SensorWatch() as watch:
        samples = runner.soak(seconds)
    return summarize_soak(samples, seconds, watch.readings)


def _co_run(runner: ChildRunner, plan: Plan, say: Say) -> CoRun:
    say(f"{runner.name}: in turns alone and beside a process that keeps a core busy")
    return measure_co_run(runner, plan, lambda _: None)


def _announce(say: Say, plan: Plan) -> Callable[[Visit], None]:
    def announce(visit: Visit) -> None:
        if visit.runner == OURS and visit.first == 2 * visit.block * plan.per_visit:
            say(f"block {visit.block + 1} of {plan.blocks}")

    return announce


def _wait(say: Say, name: str) -> Callable[[float], None]:
    return lambda seconds: say(f"{name}: still at work after {seconds:.0f} s")
