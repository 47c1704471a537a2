"""What each setting of the engine is worth for a checkpoint: measured and written up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.ablation import Effect, ablation_table, effects_json, run_ablation
from vla_simd_ros.benchmarks.conditions import busy_warning, describe_checkpoint, describe_machine
from vla_simd_ros.benchmarks.interleave import Plan
from vla_simd_ros.benchmarks.setting_runs import Say, SettingRuns, steady_decoder
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.cases import random_cases

_CASES = 4


@dataclass(frozen=True)
class AblationTask:
    """What to measure: each contrast changes one of the ``base`` settings."""

    checkpoint: str
    instruction: str
    base: EngineSettings
    plan: Plan
    warmup: int


def measure_ablation(task: AblationTask, say: Say) -> tuple[dict[str, Any], str]:
    """JSON values and Markdown."""
    machine = describe_machine()
    if warning := busy_warning():
        say(f"warning: {warning}")
    checkpoint = load_checkpoint(task.checkpoint)
    cases = random_cases(checkpoint, _CASES, 0)
    decoder = steady_decoder(checkpoint)
    with SettingRuns(
        task.checkpoint, task.instruction, cases, task.plan, task.warmup, say, decoder=decoder
    ) as runs:
        details = runs.details(task.base)
        effects = run_ablation(task.base, runs, say)
    report = {
        "policy": checkpoint.type,
        "base": asdict(task.base),
        "isa": details["isa"],
        "threads": int(details["threads"]),
        "effects": effects_json(effects),
        "checkpoint": describe_checkpoint(Path(task.checkpoint)),
        "machine": machine,
    }
    return report, _text(task, report, effects)


def _text(task: AblationTask, report: dict[str, Any], effects: list[Effect]) -> str:
    machine, plan = report["machine"], task.plan
    lines = [
        f"- policy: {report['policy']}; CPU: {machine['cpu']}; ISA: {report['isa']};"
        f" threads: {report['threads']}",
        f"- {plan.blocks} pairs A-B-B-A for every setting, {2 * plan.per_visit} queries of each value a pair,"
        f" {task.warmup} to warm up",
        "- effect: median of time of B over time of A, less one; positive favors A. A value is consistently"
        " faster if it is in all but at most one pair, and by more than the drift of A's own two times",
        f"- load average before: {machine['load_average_before']}; {machine['date']}",
        f"- command: `{machine['command']}`",
        "",
        *ablation_table(effects),
        "",
    ]
    return "\n".join(lines)
