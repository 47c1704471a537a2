"""``vla_simd check --int8``: the error that each group adds, as text and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vla_simd_ros.benchmarks.table import markdown_table

if TYPE_CHECKING:
    from vla_simd_ros.checkpoints import Checkpoint
    from vla_simd_ros.executors.simd_executor import SimdExecutor
    from vla_simd_ros.fidelity.cases import Case
    from vla_simd_ros.fidelity.int8_error import Int8Report
    from vla_simd_ros.fidelity.measure import Distance

_WORST = 10


def check_int8(
    args: argparse.Namespace,
    checkpoint: Checkpoint,
    executor: SimdExecutor,
    int8: str,
    reference: str,
    cases: Sequence[Case],
    progress: Callable[[str], None],
) -> int:
    """Measure, print, and return 0 if all groups together add no more error than allowed."""
    from vla_simd_ros.fidelity.int8_error import int8_error

    report = int8_error(
        checkpoint,
        executor,
        int8,
        reference,
        args.instruction,
        cases,
        progress,
        args.max_rms,
        single_layers=not args.groups_only,
    )
    engine = f"{executor.isa}, int8 {executor.int8_isa}, convolution {executor.settings.convolution}"
    print(f"{args.checkpoint}: engine ({engine}), {len(cases)} observations, reference {reference}\n")
    print("\n".join(tables(report, reference)))
    if args.json:
        content = {
            "checkpoint": str(args.checkpoint),
            "reference": reference,
            "isa": executor.isa,
            "int8_isa": executor.int8_isa,
            "settings": executor.settings.changed(),
            "observations": len(cases),
            "seed": args.seed,
            **report.to_json(),
        }
        args.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0 if report.passed else 1


def tables(report: Int8Report, reference: str) -> list[str]:
    """Markdown: groups, then the worst layers, then the verdict."""
    from vla_simd_ros.fidelity.references import ENGINE

    exact = "exact fp32" if reference == ENGINE else "float64"
    header = ("In int8", "Layers", "RMS from fp32", "max from fp32", f"RMS from {exact}", f"max from {exact}")
    rows = [
        (row.group, str(row.layers), *_cells(row.from_fp32), *_cells(row.from_reference))
        for row in (*report.groups, report.together)
    ]
    rows.append(("nothing", "0", "", "", *_cells(report.fp32)))
    verdict = "pass" if report.passed else "FAIL"
    rms = report.together.from_reference.rms
    return [
        *markdown_table(header, rows),
        "",
        *_worst_layers(report),
        "RMS: relative to the RMS of the actions; max: relative to the largest action. Where a policy spells "
        "its actions: of the scores of its tokens.",
        f"{verdict}: relative RMS {rms:.3e} from {exact}, allowed {report.max_rms:.3e} (--max-rms)",
    ]


def _worst_layers(report: Int8Report) -> list[str]:
    if not report.layers:
        return []
    worst = [(row.layer, row.group, *_cells(row.error)) for row in report.layers[:_WORST]]
    return [
        f"The layers that add most, each alone on the first observation ({len(report.layers)} in all):",
        "",
        *markdown_table(("Layer", "Group", "RMS from fp32", "max from fp32"), worst, text_columns=2),
        "",
    ]


def _cells(error: Distance) -> tuple[str, str]:
    return f"{error.rms:.2e}", f"{error.relative:.2e}"
