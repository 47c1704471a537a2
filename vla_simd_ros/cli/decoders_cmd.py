"""``vla_simd decoders``: what parallel decoding, distillation and early exit bring, and what they cost."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from vla_simd_ros.cli.arguments import add_plain_settings, check_outputs, count, plain_changes, seed
from vla_simd_ros.decoding.decoders import DEFAULT_SIGMA
from vla_simd_ros.decoding.parallel import INITIALIZATIONS
from vla_simd_ros.evaluation.episodes import FIRST_SEED
from vla_simd_ros.evaluation.execution import Execution, delay
from vla_simd_ros.evaluation.world import EvaluationError

_SIGMAS = "0.7,0.6,0.5,0.4"


def add_parser(subparsers: Any) -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "decoders",
        help="compare decoders of a policy that spells its actions, and of its students",
        description="Print two tables: a teacher decoded one token after the other, in parallel, and its "
        "students with and without early exit; and thresholds of the early exit. Success is counted in the "
        "simulated world, all on the same episodes; speed is measured on observations of these, all "
        "conditions taking turns. Progress goes to standard error.",
    )
    parser.add_argument("teacher", type=Path, metavar="TEACHER", help="policy folder")
    parser.add_argument(
        "--consistency", type=Path, required=True, metavar="DIR", help="student of consistency distillation"
    )
    parser.add_argument(
        "--fine-tuned", type=Path, metavar="DIR", help="student that learned the teacher's tokens only"
    )
    parser.add_argument(
        "--sigma",
        type=float,
        default=DEFAULT_SIGMA,
        metavar="P",
        help="threshold in the first table (default: %(default)s)",
    )
    parser.add_argument(
        "--sigmas",
        default=_SIGMAS,
        metavar="LIST",
        help="thresholds of the second table (default: %(default)s)",
    )
    parser.add_argument(
        "--initialization",
        choices=INITIALIZATIONS,
        default=INITIALIZATIONS[0],
        help="what all decoders guess first (default: %(default)s)",
    )
    parser.add_argument(
        "--episodes", type=count, default=100, metavar="N", help="of each row (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=seed, default=FIRST_SEED, metavar="N", help="of the first world (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=12.0, metavar="S", help="for an episode (default: %(default)s)"
    )
    parser.add_argument(
        "--delay",
        default="30",
        metavar="MS",
        help="from query to chunk, as in evaluate (default: %(default)s)",
    )
    parser.add_argument(
        "--query-threshold",
        type=int,
        default=2,
        metavar="STEPS",
        help="query when no more control steps than these have a row (default: %(default)s)",
    )
    parser.add_argument(
        "--observations", type=count, default=100, metavar="N", help="to measure with (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=count, default=5, metavar="N", help="of each measurement (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    add_plain_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print. Raises `EvaluationError` and `CheckpointError` for what cannot be compared."""
    from vla_simd_ros.benchmarks.conditions import busy_warning, describe_checkpoint, describe_machine
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.evaluation.decoder_study import StudyRequest, described, run_study
    from vla_simd_ros.evaluation.decoder_tables import tables, to_json
    from vla_simd_ros.policies.registry import define_policy

    check_outputs(args.json)
    request = StudyRequest(
        teacher=args.teacher,
        consistency=args.consistency,
        fine_tuned=args.fine_tuned,
        sigma=args.sigma,
        sigmas=_numbers(args.sigmas),
        initialization=args.initialization,
        episodes=args.episodes,
        first_seed=args.seed,
        seconds=args.seconds,
        execution=Execution(threshold=args.query_threshold, delay=delay(args.delay)),
        observations=args.observations,
        repeats=args.repeats,
        changes=plain_changes(args),
    )
    machine, warning = describe_machine(), busy_warning()
    if warning:
        _say(warning)
    rows = run_study(request, _say)
    chunk = define_policy(load_checkpoint(args.teacher)).spec.chunk_size
    print(tables(rows, request.sigma, request.sigmas, chunk))
    if args.json:
        checkpoints = {name: describe_checkpoint(folder) for name, folder in request.folders.items()}
        conditions = {"machine": machine, "checkpoints": checkpoints, "settings": described(request)}
        args.json.write_text(json.dumps(to_json(rows, conditions, chunk), indent=1) + "\n", encoding="utf-8")
    return 0


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise EvaluationError(f"thresholds '{text}': expected numbers with commas between them") from None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
