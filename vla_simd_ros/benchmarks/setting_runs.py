"""Pairs of engine settings, timed in turns."""

from __future__ import annotations

import statistics
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vla_simd_ros.benchmarks.backend import OURS, RUNNERS, Setup
from vla_simd_ros.benchmarks.child import ChildRunner
from vla_simd_ros.benchmarks.consistency import LEAST_PAIRS, Pair, Verdict, judge
from vla_simd_ros.benchmarks.interleave import Plan, measure
from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.policies.registry import define_policy

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case

Say = Callable[[str], None]

_KEPT = 3
_STEADY = DecoderOptions("autoregressive")


class SettingRuns:
    """Compares settings of one policy; each has a process of its own, stopped outside its turn.

    A context manager. The processes of the settings used last are kept, so that a baseline is loaded once.
    Raises BenchmarkError where settings cannot be had or a query fails.
    """

    def __init__(
        self,
        checkpoint: str,
        instruction: str,
        cases: Sequence[Case],
        plan: Plan,
        warmup: int,
        say: Say,
        factory: str = RUNNERS[OURS].factory,
        decoder: DecoderOptions = DEFAULT_OPTIONS,
    ) -> None:
        if plan.blocks < LEAST_PAIRS:
            raise ValueError(f"got {plan.blocks} blocks, expected at least {LEAST_PAIRS}")
        self._checkpoint = checkpoint
        self._instruction = instruction
        self._cases = cases
        self._plan = plan
        self._warmup = warmup
        self._say = say
        self._factory = factory
        self._decoder = decoder
        self._runners: OrderedDict[EngineSettings, ChildRunner] = OrderedDict()

    def __enter__(self) -> SettingRuns:
        return self

    def __exit__(self, *_: object) -> None:
        while self._runners:
            self._runners.popitem()[1].close()

    def details(self, settings: EngineSettings) -> dict[str, str]:
        """What the engine made of the settings: its threads and its instruction set, among others."""
        return dict(self._runner(settings).details)

    def compare(self, a: EngineSettings, b: EngineSettings) -> tuple[Verdict, list[Pair]]:
        """Time both in turns, A-B-B-A in each block."""
        runners = {"A": self._runner(a), "B": self._runner(b)}
        times = measure(runners, self._plan, lambda _: None)
        pairs = [_pair(*blocks) for blocks in zip(times["A"], times["B"], strict=True)]
        return judge(pairs), pairs

    def _runner(self, settings: EngineSettings) -> ChildRunner:
        if settings in self._runners:
            self._runners.move_to_end(settings)
            return self._runners[settings]
        while len(self._runners) >= _KEPT:
            self._runners.popitem(last=False)[1].close()
        setup = Setup(self._checkpoint, self._instruction, settings, decoder=self._decoder)
        runner = ChildRunner(OURS, self._factory, setup, self._cases, self._wait)
        self._runners[settings] = runner
        runner.time_queries(0, self._warmup)
        return runner

    def _wait(self, seconds: float) -> None:
        self._say(f"still at work after {seconds:.0f} s")


def steady_decoder(checkpoint: Checkpoint) -> DecoderOptions:
    """What decodes in the same way in every query, where a policy has tokens to decode."""
    return DEFAULT_OPTIONS if define_policy(checkpoint).action_tokens is None else _STEADY


def _pair(a: Sequence[float], b: Sequence[float]) -> Pair:
    """A block's two visits of each: their medians."""
    half = len(a) // 2
    first_a, second_a = statistics.median(a[:half]), statistics.median(a[half:])
    first_b, second_b = statistics.median(b[:half]), statistics.median(b[half:])
    return Pair(first_a, first_b, second_b, second_a)
