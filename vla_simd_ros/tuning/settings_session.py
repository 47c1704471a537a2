"""Tuning the settings of the engine for a checkpoint, from start to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.conditions import busy_warning
from vla_simd_ros.benchmarks.interleave import make_plan
from vla_simd_ros.benchmarks.setting_runs import SettingRuns, steady_decoder
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.int8_choice import AUTO, choose_int8
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.tuning.search import Step, alternatives, search
from vla_simd_ros.tuning.tuned import shape_of, this_machine
from vla_simd_ros.tuning.tuning_file import Tuned, TuningError

Say = Callable[[str], None]

_BLOCKS = 6
_QUERIES = 24
_WARMUP = 3


@dataclass(frozen=True)
class SettingsTask:
    """What to tune: ``names`` are the settings to try, all where there are none; ``budget_s`` the seconds
    after which no further value is tried; with ``int8``, the groups of layers that are faster in int8 too."""

    checkpoint: str
    instruction: str
    names: Sequence[str]
    budget_s: float
    int8: bool = False


def tune_settings(task: SettingsTask, say: Say, clock: Callable[[], float] = time.monotonic) -> Tuned:
    """Measure, telling ``say`` about each step. Raises TuningError for a setting that is not searched, and
    where no value could be measured."""
    checkpoint = load_checkpoint(task.checkpoint)
    machine = this_machine()
    tried = _tried(task.names, machine["threads"])
    if warning := busy_warning():
        say(f"warning: {warning}")
    start = clock()
    cases = random_cases(checkpoint, 2, 0)
    plan = make_plan(_QUERIES, _BLOCKS)
    steps: list[Step] = []
    decoder = steady_decoder(checkpoint)
    with SettingRuns(task.checkpoint, task.instruction, cases, plan, _WARMUP, say, decoder=decoder) as runs:
        found, steps = search(
            EngineSettings(threads=machine["threads"]),
            tried,
            lambda a, b: runs.compare(a, b)[0],
            lambda: clock() - start < task.budget_s,
            lambda step: say(str(step)),
        )
    if steps and all(step.verdict is None for step in steps):
        raise TuningError(f"nothing could be measured: {steps[0]}")
    if found.convolution == "measured":
        found = _with_layers(task, found)
    int8 = _faster_in_int8(task, found) if task.int8 else None
    return Tuned(shape_of(checkpoint), machine, _changed(found), [str(step) for step in steps], int8)


def _tried(names: Sequence[str], threads: int) -> dict[str, Sequence[Any]]:
    every = alternatives(threads)
    for name in names:
        if name not in every:
            raise TuningError(f"setting '{name}' is not searched here, expected some of {', '.join(every)}")
    return {name: values for name, values in every.items() if not names or name in names}


def _with_layers(task: SettingsTask, found: EngineSettings) -> EngineSettings:
    """The algorithm of each layer written down, so that later runs need not measure, nor differ."""
    executor = SimdExecutor(found)
    executor.load(instruct(load_checkpoint(Path(task.checkpoint)), task.instruction).compiled)
    return found.but(convolution_layers=executor.convolution_layers)


def _faster_in_int8(task: SettingsTask, found: EngineSettings) -> str:
    """The groups of layers that the engine computes faster in int8, with commas."""
    executor = SimdExecutor(found)
    programs = instruct(load_checkpoint(Path(task.checkpoint)), task.instruction).compiled.programs
    return ",".join(choose_int8(AUTO, [op for program in programs.values() for op in program.ops], executor))


def _changed(settings: EngineSettings) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.changed().items()
    }
