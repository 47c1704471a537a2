"""``vla_simd check``: the engine's actions beside those of a reference implementation."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.cli.arguments import (
    add_int8,
    add_num_steps,
    add_settings,
    check_outputs,
    engine_choice,
    seed,
)
from vla_simd_ros.cli.convolution_check import convolution_table
from vla_simd_ros.cli.int8_check import check_int8
from vla_simd_ros.fidelity.measure import MAX_RMS

if TYPE_CHECKING:
    from vla_simd_ros.checkpoints import Checkpoint
    from vla_simd_ros.executors.simd_executor import SimdExecutor
    from vla_simd_ros.fidelity.cases import Case
    from vla_simd_ros.fidelity.check import OutputReport, TokenReport
    from vla_simd_ros.fidelity.convolution_error import ConvolutionError
    from vla_simd_ros.fidelity.trace import TraceEntry

_INSTRUCTION = "put the tape into the box"


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "check",
        help="compare the engine's actions with a reference implementation",
        description="Run random raw observations (uint8 frames, state in robot units) through the engine and "
        "through a reference in float32 and float64. Exit code 1 if the actions are too far apart. Of a "
        "policy that spells its actions in tokens, the scores of those that the reference decodes are "
        "compared, and the tokens that the engine decodes. With --convolution or --exact also: how far the "
        "output of each convolution is from that of the direct method. With --int8 instead: what each group "
        "in int8 adds to the error, and which cause it.",
    )
    parser.add_argument("checkpoint", type=Path, help="LeRobot pretrained_model folder")
    parser.add_argument(
        "--reference",
        choices=("lerobot", "original", "torch", "float64", "engine"),
        help="LeRobot's own policy, that of its authors, this package's network in PyTorch, or the same "
        "graph in numpy (any policy); default: the most independent one that the policy has. With --int8 "
        "also the engine itself in exact fp32, which takes seconds where float64 takes minutes",
    )
    parser.add_argument("--observations", type=_positive, default=4, metavar="N", help="default: 4")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the observations (default: 0)")
    add_num_steps(parser)
    parser.add_argument(
        "--noise-seed",
        type=seed,
        default=0,
        help="seed of the noise of a policy that iterates, the same for both sides (default: 0)",
    )
    parser.add_argument(
        "--instruction", default=_INSTRUCTION, help=f"for policies that take one (default: '{_INSTRUCTION}')"
    )
    add_int8(parser)
    parser.add_argument(
        "--max-rms",
        type=_share,
        default=MAX_RMS,
        metavar="X",
        help="with --int8: relative RMS error that is allowed for the actions (default: %(default)s)",
    )
    parser.add_argument(
        "--groups-only", action="store_true", help="with --int8: do not try every layer by itself too"
    )
    add_settings(parser)
    parser.add_argument("--trace", action="store_true", help="list every tensor, not only one that departs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to FILE")


def run(args: argparse.Namespace) -> int:
    """Compare, print, and return 0 if the actions are within the bound."""
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.executors.simd_executor import SimdExecutor
    from vla_simd_ros.fidelity.cases import random_cases
    from vla_simd_ros.fidelity.check import compare, trace_tensors
    from vla_simd_ros.fidelity.check_tokens import compare_tokens
    from vla_simd_ros.fidelity.errors import UnavailableReferenceError
    from vla_simd_ros.fidelity.measure import bound_with
    from vla_simd_ros.fidelity.references import ENGINE, references_for
    from vla_simd_ros.policies.registry import define_policy

    check_outputs(args.json)
    checkpoint = load_checkpoint(args.checkpoint)
    if args.reference == ENGINE and not args.int8:
        raise UnavailableReferenceError(
            f"the reference '{ENGINE}' is for --int8; without, the engine would be compared with itself"
        )
    reference = args.reference or references_for(checkpoint.type)[0]
    chosen = engine_choice(args, checkpoint, args.int8)
    executor = SimdExecutor(chosen.settings)
    cases = random_cases(
        checkpoint, args.observations, args.seed, noise_seed=args.noise_seed, num_steps=args.num_steps
    )
    settings = executor.settings
    bound = bound_with(settings.convolution, cases[0].num_steps is not None, linear=settings.linear)
    if args.int8:
        return check_int8(args, checkpoint, executor, chosen.int8, reference, cases, _progress)
    compared = checkpoint, executor, reference, args.instruction, cases, _progress, bound
    if define_policy(checkpoint).action_tokens is None:
        report = compare(*compared)
    else:
        report, cases = compare_tokens(*compared)
    entries: list[TraceEntry] = []
    if args.trace or not report.passed:
        _progress("tensor by tensor against float64")
        entries = trace_tensors(checkpoint, executor, args.instruction, cases[0], bound)
    layers = _convolution_errors(args, checkpoint, executor, cases)
    _print(args, report, reference, executor)
    _print_trace(entries, args.trace)
    if layers is not None:
        print("\n".join(["", *convolution_table(layers)]))
    if args.json:
        content = _to_json(args, report, reference, executor, entries, cases[0].num_steps)
        if layers is not None:
            content["convolutions"] = [asdict(layer) for layer in layers]
        args.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0 if report.passed else 1


def _convolution_errors(
    args: argparse.Namespace,
    checkpoint: Checkpoint,
    executor: SimdExecutor,
    cases: Sequence[Case],
) -> list[ConvolutionError] | None:
    """The error of each convolution where the command line chooses the algorithm."""
    if args.convolution is None and not args.exact:
        return None
    from vla_simd_ros.fidelity.convolution_error import convolution_errors
    from vla_simd_ros.fidelity.programs import instruct

    _progress("convolution by convolution against the direct method")
    return convolution_errors(executor, instruct(checkpoint, args.instruction), cases)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of observations, expected 1 or more")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no relative error, expected a number above 0")
    return value


def _progress(what: str) -> None:
    print(f"check: {what} ...", file=sys.stderr, flush=True)


def _print(args: argparse.Namespace, report: OutputReport, reference: str, executor: SimdExecutor) -> None:
    shape = "x".join(map(str, report.shape))
    engine = f"{executor.isa}, {executor.threads} threads, convolution {executor.settings.convolution}"
    print(f"{args.checkpoint}: engine ({engine}) against {reference},")
    print(f"{args.observations} observations, output '{report.name}' {shape}, largest {report.largest:.6g}")
    print(f"{'':34}{'max abs':>11}{'/ largest':>11}{'rel. RMS':>11}")
    for label, row in (
        ("engine from reference (float32)", report.error),
        ("engine from reference (float64)", report.error_float64),
        ("reference, float32 from float64", report.departure),
    ):
        print(f"{label:34}{row.absolute:11.3e}{row.relative:11.3e}{row.rms:11.3e}")
    if report.tokens is not None:
        _print_tokens(report.tokens, report.bound)
    verdict = "pass" if report.passed else "FAIL"
    print(f"{verdict}: bound on max abs / largest is {report.bound:.3e}")


def _print_tokens(tokens: TokenReport, bound: float) -> None:
    print(f"{tokens.same} of {tokens.chunks} chunks have the tokens of the reference in float64", end="")
    if tokens.same == tokens.chunks:
        print()
    else:
        print(
            f"; it prefers its own by up to {tokens.margin:.3e} of the largest score, allowed {2 * bound:.3e}"
        )


def _print_trace(entries: list[TraceEntry], everything: bool) -> None:
    from vla_simd_ros.fidelity.trace import first_departure

    if not entries:
        return
    if everything:
        print(f"{'tensor':44}{'shape':>14}{'/ largest':>11}{'float32':>11}")
        for entry in entries:
            shape = "x".join(map(str, entry.tensor.shape))
            error, single = entry.error.relative, entry.departure.relative
            mark = "  departs" if entry.departs else ""
            print(f"{entry.name:44}{shape:>14}{error:11.3e}{single:11.3e}{mark}")
    first = first_departure(entries)
    if first is None:
        print("no tensor departs from the float64 run of the same programs")
    else:
        print(
            f"first tensor that departs: {first.name} (block {first.tensor.block}), "
            f"by {first.error.relative:.3e} of its largest value; "
            f"plain float32 by {first.departure.relative:.3e}"
        )


def _to_json(
    args: argparse.Namespace,
    report: OutputReport,
    reference: str,
    executor: SimdExecutor,
    entries: list[TraceEntry],
    num_steps: int | None,
) -> dict[str, Any]:
    from vla_simd_ros.fidelity.trace import first_departure

    first = first_departure(entries)
    return {
        "checkpoint": str(args.checkpoint),
        "reference": reference,
        "isa": executor.isa,
        "threads": executor.threads,
        "settings": executor.settings.changed(),
        "observations": args.observations,
        "seed": args.seed,
        "num_steps": num_steps,
        "outputs": [report.to_json()],
        "passed": report.passed,
        "first_departure": None if first is None else first.name,
    }
