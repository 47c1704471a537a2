"""A language model's speed beside a peer's: reading a prompt, and writing one token after the other.

Both read the same file and the same tokens, on as many threads, each in a process of its own that is stopped
while the other has its turn (A-B-B-A).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from vla_simd_ros.benchmarks.backend import OURS, BenchmarkError, RunnerSpec, Setup
from vla_simd_ros.benchmarks.child import ChildRunner
from vla_simd_ros.benchmarks.interleave import Plan, visits
from vla_simd_ros.benchmarks.report import ORDER
from vla_simd_ros.benchmarks.statistics import Comparison, compare
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.executors.settings import EngineSettings

Say = Callable[[str], None]

PREFILL, DECODE = "prefill", "decode"
"""Milliseconds for all tokens of a prompt, with the first token that follows; and for each further token."""

LANGUAGE_RUNNERS: Mapping[str, RunnerSpec] = {
    OURS: RunnerSpec("vla_simd_ros.benchmarks.own_language:LanguageBackend"),
    "llamacpp": RunnerSpec("vla_simd_ros.benchmarks.peers.llama_cpp_peer:LlamaCppBackend"),
}
LANGUAGE_PEERS = tuple(name for name in LANGUAGE_RUNNERS if name != OURS)


@dataclass(frozen=True)
class Prompt:
    """Tokens to read, and how many to write behind them."""

    tokens: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class LanguageOptions:
    """What to measure; with ``settings.threads`` of 0 the engine chooses, and peers get as many."""

    path: str
    peers: tuple[str, ...]
    plan: Plan
    settings: EngineSettings


@dataclass(frozen=True)
class LanguageResult:
    """Times by runner, stage and block; for each peer and prompt, the part of this engine's text that its own
    begins with, from 0 to 1."""

    blocks_ms: Mapping[str, Mapping[str, list[list[float]]]]
    details: Mapping[str, Mapping[str, str]]
    same_beginning: Mapping[str, list[float]]
    prompts: Sequence[Prompt]
    threads: int

    def comparison(self, peer: str, stage: str) -> Comparison:
        """How many times as long a peer takes as this engine."""
        return compare(self.blocks_ms[peer][stage], self.blocks_ms[OURS][stage])

    def tokens_per_second(self, runner: str, stage: str) -> float:
        """By the median time."""
        ms = statistics.median(time for block in self.blocks_ms[runner][stage] for time in block)
        return 1e3 * (len(self.prompts[0].tokens) if stage == PREFILL else 1) / ms


def check_language_peers(names: Sequence[str]) -> None:
    """Raises BenchmarkError for a name that is unknown or given twice."""
    for name in names:
        if name not in LANGUAGE_PEERS:
            raise BenchmarkError(
                f"unknown peer {name!r} of a language model, expected some of {', '.join(LANGUAGE_PEERS)}"
            )
        if names.count(name) > 1:
            raise BenchmarkError(f"peer {name!r} is given more than once")


def run_language_bench(options: LanguageOptions, prompts: Sequence[Prompt], say: Say) -> LanguageResult:
    """Measure. Raises BenchmarkError for a runner that cannot be made or fails."""
    check_language_peers(options.peers)
    with ExitStack() as stack:

        def start(name: str, threads: int) -> ChildRunner:
            say(f"{name}: loading")
            setup = Setup(options.path, "", options.settings.but(threads=threads))
            runner = ChildRunner(name, LANGUAGE_RUNNERS[name].factory, setup, prompts)
            return stack.enter_context(runner)

        ours = start(OURS, options.settings.threads)
        threads = int(ours.details["threads"])
        runners = {OURS: ours, **{name: start(name, threads) for name in options.peers}}
        answers: dict[str, list[Any]] = {
            name: runner.answers(len(prompts)) for name, runner in runners.items()
        }
        times = _measure(runners, options.plan, say)
    return LanguageResult(
        blocks_ms=times,
        details={name: dict(runner.details) for name, runner in runners.items()},
        same_beginning={name: _same_beginnings(answers[name], answers[OURS]) for name in options.peers},
        prompts=prompts,
        threads=threads,
    )


def _measure(
    runners: Mapping[str, ChildRunner], plan: Plan, say: Say
) -> dict[str, dict[str, list[list[float]]]]:
    times: dict[str, dict[str, list[list[float]]]] = {
        name: {stage: [[] for _ in range(plan.blocks)] for stage in (PREFILL, DECODE)} for name in runners
    }
    for visit in visits(tuple(runners), plan):
        say(f"block {visit.block + 1} of {plan.blocks}: {visit.runner}")
        for query in range(visit.first, visit.first + visit.count):
            runners[visit.runner].time_queries(query, 1)
            for stage, ms in runners[visit.runner].programs(1).items():
                times[visit.runner][stage][visit.block].append(ms)
    return times


def _same_beginnings(answers: Sequence[str], expected: Sequence[str]) -> list[float]:
    pairs = zip(answers, expected, strict=True)
    return [_common(got, wanted) / max(1, len(wanted)) for got, wanted in pairs]


def _common(a: str, b: str) -> int:
    """How many characters both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def language_json(
    result: LanguageResult, options: LanguageOptions, model: Mapping[str, str], machine: Mapping[str, Any]
) -> dict[str, Any]:
    """The comparison as JSON values."""
    stages = (PREFILL, DECODE)
    return {
        "model": dict(model),
        "threads": result.threads,
        "prompt_tokens": len(result.prompts[0].tokens),
        "new_tokens": result.prompts[0].count,
        "results": [
            {
                "runner": name,
                **{f"{stage}_tokens_per_s": result.tokens_per_second(name, stage) for stage in stages},
                "details": dict(result.details[name]),
                "blocks_ms": dict(result.blocks_ms[name]),
            }
            for name in result.blocks_ms
        ],
        "speedups": {
            peer: {stage: asdict(result.comparison(peer, stage)) for stage in stages}
            for peer in result.same_beginning
        },
        "same_beginning": dict(result.same_beginning),
        "protocol": {
            "boundary": "token ids in, token ids out; prefill: all tokens of the prompt and the first token"
            " behind them; decode: one further token, the most likely one",
            "order": ORDER,
            "blocks": options.plan.blocks,
            "queries_per_visit": options.plan.per_visit,
            "prompts": len(result.prompts),
        },
        "machine": dict(machine),
    }


def language_markdown(
    result: LanguageResult, options: LanguageOptions, model: Mapping[str, str], machine: Mapping[str, Any]
) -> str:
    """The conditions as a list, then the table; ends with a newline."""
    prompt, details = result.prompts[0], result.details[OURS]
    rows = []
    for name in result.blocks_ms:
        ratios = ["", ""]
        if name != OURS:
            found = [result.comparison(name, stage) for stage in (PREFILL, DECODE)]
            ratios = [f"{one.ratio:.2f} ({one.low:.2f} to {one.high:.2f})" for one in found]
        speeds = [f"{result.tokens_per_second(name, stage):.1f}" for stage in (PREFILL, DECODE)]
        rows.append((name, speeds[0], ratios[0], speeds[1], ratios[1]))
    same = [
        f"The texts of {peer} begin as this engine's: "
        + ", ".join(f"{share:.0%}" for share in shares)
        + " of each."
        for peer, shares in result.same_beginning.items()
    ]
    return "\n".join(
        [
            f"- model: {model['file']}; prompts of {len(prompt.tokens)} tokens, {prompt.count} written",
            f"- CPU: {machine['cpu']}; ISA: {details['isa']}; threads: {result.threads}",
            f"- {options.plan.queries} queries of each runner in {options.plan.blocks} blocks, A-B-B-A",
            f"- load average before: {machine['load_average_before']}; {machine['date']}",
            f"- command: `{machine['command']}`",
            "",
            *markdown_table(
                ("Runner", "Prefill tokens/s", "ours is faster by", "Decode tokens/s", "ours is faster by"),
                rows,
            ),
            "",
            *same,
            "",
        ]
    )
