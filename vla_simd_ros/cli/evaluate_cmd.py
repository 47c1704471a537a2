"""``vla_simd evaluate``: how often a policy does what it is told, and what delays and settings cost it."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from vla_simd_ros.cli.arguments import (
    add_decoder,
    add_int8,
    add_settings,
    check_outputs,
    decoder_conditions,
    seed,
    setting_changes,
)
from vla_simd_ros.cli.node_process import SIMULATED, become, require
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.evaluation.episodes import FIRST_SEED
from vla_simd_ros.evaluation.execution import MEASURED, MODES, SYNCHRONOUS, Execution, delay
from vla_simd_ros.evaluation.libero_world import STATES_PER_TASK, SUITES
from vla_simd_ros.evaluation.request import EPISODES, SHUFFLES, TASK, TIME_LIMIT_S, Request
from vla_simd_ros.evaluation.world import EvaluationError
from vla_simd_ros.graph.int8 import FP32, INT8

_ALL = "all"


def add_parser(subparsers: Any) -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "evaluate",
        help="count how often a policy does what it is told",
        description="Run a policy in closed loop in a simulated world and count the episodes that reach "
        "their goal, with 95 %% intervals. Lists with commas make a condition of each combination; all "
        "conditions run the same episodes. Results go to standard output, progress to standard error.",
    )
    parser.add_argument(
        "checkpoints", nargs="*", metavar="CHECKPOINT", help="policy folders; several are compared"
    )
    parser.add_argument(
        "--expert", action="store_true", help="the scripted expert instead: checks the evaluation itself"
    )
    parser.add_argument(
        "--env",
        default=TASK,
        metavar="WORLD",
        help=f"{TASK}: the simulated SO-101 (default); or {', '.join(SUITES)}",
    )
    _add_episodes(parser.add_argument_group("episodes"))
    _add_execution(parser.add_argument_group("execution"))
    _add_results(parser.add_argument_group("results"))
    add_int8(parser)
    parser.add_argument(
        "--precision",
        metavar="LIST",
        help=f"{FP32}, {INT8} or both to compare them (default: {FP32}, or {INT8} with --int8)",
    )
    add_decoder(parser, lists=True)
    add_settings(parser)


def _add_episodes(group: Any) -> None:
    group.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help=f"of each condition (default: {EPISODES}; of LIBERO: {STATES_PER_TASK} for each instruction)",
    )
    group.add_argument(
        "--seed",
        type=seed,
        metavar="N",
        help=f"of the first episode's world, counted on from there (default: {FIRST_SEED}; of LIBERO: 0)",
    )
    group.add_argument(
        "--instruction",
        action="append",
        default=[],
        metavar="TEXT",
        help="one of those to use, repeatedly (default: all that the world knows)",
    )
    group.add_argument(
        "--shuffle",
        nargs="?",
        choices=SHUFFLES,
        const=SHUFFLES[0],
        default="",
        help="the same worlds with each instruction in place of another one, beside them as they are "
        "(default) or only; the new goal and the original one are scored",
    )
    group.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"simulated time for an episode (default: {TIME_LIMIT_S:g}; of LIBERO: as its suites allow)",
    )


def _add_execution(group: Any) -> None:
    group.add_argument(
        "--mode",
        metavar="LIST",
        help=f"some of {', '.join(MODES)} (default: time_aligned; of LIBERO: {SYNCHRONOUS})",
    )
    group.add_argument(
        "--horizon",
        default="0",
        metavar="LIST",
        help="rows of a chunk to execute (default: the checkpoint's)",
    )
    group.add_argument(
        "--delays",
        metavar="LIST",
        help=f"simulated, from query to chunk: milliseconds, {MEASURED} (what the query takes here) or "
        f"{MEASURED}+MS (default: {MEASURED}; of LIBERO: 0)",
    )
    group.add_argument(
        "--query-pacing",
        type=QueryPacing,
        choices=list(QueryPacing),
        metavar="WHEN",
        help=f"when queries start: {', '.join(QueryPacing)} (default: as the checkpoint says, else "
        f"{QueryPacing.CONTINUOUS.value})",
    )
    group.add_argument(
        "--query-threshold",
        type=int,
        metavar="STEPS",
        help="query only when no more control steps than these have a row: on_demand",
    )
    group.add_argument(
        "--ros",
        action="store_true",
        help="through the nodes: in real time, and with the delay that queries have there",
    )
    group.add_argument(
        "--logs",
        type=Path,
        default=Path("out/evaluate"),
        metavar="DIR",
        help="of the nodes (default: out/evaluate)",
    )


def _add_results(group: Any) -> None:
    group.add_argument("--json", type=Path, metavar="FILE", help="write everything there, episode by episode")
    group.add_argument(
        "--gif", type=Path, metavar="DIR", help="animations of successes and failures of each condition"
    )
    group.add_argument(
        "--animation",
        type=Path,
        metavar="FILE",
        help="one small animation of a success with each instruction, of the first condition",
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate and print. Raises `EvaluationError` and `CheckpointError` for what cannot be evaluated."""
    request = request_from(args)
    check_outputs(args.json, args.animation)
    return _become_nodes(args, request) if args.ros else _evaluate(args, request)


def request_from(args: argparse.Namespace) -> Request:
    """What the command line asks for. Raises EvaluationError."""
    if args.expert == bool(args.checkpoints):
        given = "both a checkpoint and --expert are" if args.expert else "no checkpoint is"
        raise EvaluationError(f"{given} given, expected a checkpoint or --expert")
    return Request(
        world=args.env,
        checkpoints=tuple(args.checkpoints),
        arithmetics=_arithmetics(args),
        executions=_executions(args),
        decoders=decoder_conditions(args, args.decoder),
        episodes=args.episodes,
        first_seed=args.seed,
        instructions=tuple(args.instruction),
        shuffle=args.shuffle,
        seconds=args.seconds,
        settings=args.settings,
        changes=setting_changes(args),
    )


def _arithmetics(args: argparse.Namespace) -> tuple[str, ...]:
    """Groups of layers in int8, "" for none, for each precision that is asked for."""
    precisions = _list(args.precision or (INT8 if args.int8 else FP32))
    unknown = [each for each in precisions if each not in (FP32, INT8)]
    if unknown:
        raise EvaluationError(f"precision '{unknown[0]}' is unknown, expected {FP32} or {INT8}")
    return tuple((args.int8 or _ALL) if each == INT8 else "" for each in precisions)


def _executions(args: argparse.Namespace) -> tuple[Execution, ...]:
    libero = args.env != TASK
    modes = _list(args.mode or (SYNCHRONOUS if libero else Execution().mode))
    delays = [delay(text) for text in _list(args.delays or ("0" if libero else MEASURED))]
    return tuple(
        Execution(mode, horizon, None, late)
        if mode == SYNCHRONOUS
        else Execution(mode, horizon, args.query_threshold, late, args.query_pacing)
        for mode, horizon, late in itertools.product(modes, _horizons(args.horizon), delays)
    )


def _horizons(text: str) -> list[int]:
    try:
        return [int(part) for part in _list(text)]
    except ValueError:
        raise EvaluationError(f"horizon '{text}': expected whole numbers of rows") from None


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _evaluate(args: argparse.Namespace, request: Request) -> int:
    from vla_simd_ros.benchmarks.conditions import describe_checkpoint, describe_machine
    from vla_simd_ros.evaluation.gallery import Gallery
    from vla_simd_ros.evaluation.report import tables, to_json
    from vla_simd_ros.evaluation.seats import run as run_all
    from vla_simd_ros.evaluation.seats import stage

    machine = describe_machine()
    gallery = Gallery(stage, args.gif, args.animation, _say)
    outcomes = run_all(request, _say, gallery.show)
    print(tables(outcomes))
    if args.json:
        checkpoints = [describe_checkpoint(Path(folder)) for folder in request.checkpoints]
        conditions = {"machine": machine, "checkpoints": checkpoints}
        args.json.write_text(json.dumps(to_json(outcomes, conditions), indent=1) + "\n")
    if outcomes[-1].interrupted:
        raise KeyboardInterrupt  # the exit status tells that there was more to come
    return 0


def _become_nodes(args: argparse.Namespace, request: Request) -> int:
    """Replace this process by the one that starts the nodes; its exit status is the evaluation's."""
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.evaluation.through_nodes import NodeRequest, check
    from vla_simd_ros.package_files import package_folder
    from vla_simd_ros.sim.demo_policy import image_size

    require(*SIMULATED)
    if args.gif or args.animation:
        raise EvaluationError("--ros makes no animations, expected neither --gif nor --animation")
    check(request)
    sizes = {image_size(load_checkpoint(folder)) for folder in request.checkpoints}
    if len(sizes) > 1:
        raise EvaluationError(f"checkpoints take pictures of {sizes} pixels, expected one size for --ros")
    asked = NodeRequest(
        request,
        *sizes.pop(),
        config=str(package_folder("config")),
        out=str(args.logs.resolve()),
        results=str(args.json.resolve()) if args.json else "",
    )
    return become("evaluation_main", asked.to_json())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
