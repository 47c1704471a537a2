"""``vla_simd demo``: the simulated robot, the policy and the chunk executor, run for a while and reported on.

This part needs no ROS: it prepares the checkpoint and the settings, then becomes the process that runs them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.cli.arguments import add_num_steps, add_seed
from vla_simd_ros.cli.node_process import SIMULATED, become, require
from vla_simd_ros.control.delay_distribution import FORMS, delay_distribution
from vla_simd_ros.control.schedule import SupplyError
from vla_simd_ros.package_files import package_folder
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.sampling import check_sampling
from vla_simd_ros.sim.demo_policy import (
    FULL_SIZE,
    POLICIES,
    SEED,
    TRAINED,
    TRAINED_NOTE,
    image_size,
    random_checkpoint,
)

_NODES = ("robot_sim_node", "policy_node", "chunk_executor_node")
_DELAYS_MS = (0, 100, 200, 300, 400, 500, 750, 1000, 1500, 2000)
_HORIZONS = (4, 8, 12, 16, 24, 32, 50)
_HORIZON_DELAY = "lognormal:200,0.2"
_RUN_S, _STUDY_S = 60.0, 12.0
_INSTRUCTIONS = ("put the red cube on the left pad", "put the blue cube on the right pad")
_RANDOM = "impact"


class DemoUnavailable(RuntimeError):
    """The demo cannot be as asked for; the message says why, and what to do."""


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "demo",
        help="run a simulated robot with a policy and report what happened",
        description="Run a simulated SO-101 with two cameras, the policy node and the chunk executor; "
        "print a table, draw a picture. A trained policy that comes with the package drives the arm, unless "
        "a checkpoint or a random policy is asked for.",
    )
    parser.add_argument(
        "--duration",
        type=_seconds,
        metavar="S",
        help="seconds to run (default: 60; of each run of a study: 12)",
    )
    _add_policy(parser)
    parser.add_argument(
        "--instruction",
        action="append",
        metavar="TEXT",
        help="what the arm is to do; given twice, the second one replaces the first half-way",
    )
    parser.add_argument(
        "--typed",
        action=argparse.BooleanOptionalAction,
        help="take lines of standard input as new instructions (default: if it is a terminal)",
    )
    parser.add_argument(
        "--mode", choices=("lagged", "time_aligned"), help="how chunks are executed (default: what C2 allows)"
    )
    parser.add_argument("--control-rate", type=float, metavar="HZ", help="commands per second (default: 30)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the engine (default: all cores)")
    parser.add_argument(
        "--hybrid",
        action="store_true",
        help="cut the policy in two for two executors whose frames overlap, as hybrid_scheduler_node does "
        "(docs/hybrid.md); its parameters by --param policy_node.NAME=VALUE, --threads are the second one's",
    )
    add_num_steps(parser)
    add_seed(parser)
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        type=_parameter,
        metavar="NODE.NAME=VALUE",
        help=f"any other parameter; NODE is one of {', '.join(_NODES)}",
    )
    parser.add_argument(
        "--inject-delay",
        type=_delay,
        metavar="DIST",
        help=f"make each query slower, in milliseconds: {FORMS}",
    )
    _add_studies(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="folder of results (default: out/demo)",
    )


def _add_policy(parser: argparse.ArgumentParser) -> None:
    policy = parser.add_mutually_exclusive_group()
    policy.add_argument("--checkpoint", metavar="DIR", help="LeRobot pretrained_model folder to run")
    policy.add_argument(
        "--policy", choices=POLICIES, help=f"random one to run (of --small, --full and studies: {_RANDOM})"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="a small random one (default for studies)")
    size.add_argument(
        "--full",
        action="store_true",
        help=f"a random one of full size (default for --policy {' and '.join(FULL_SIZE)})",
    )


def _add_studies(parser: argparse.ArgumentParser) -> None:
    studies = parser.add_argument_group("instead of one run").add_mutually_exclusive_group()
    studies.add_argument(
        "--delay-study",
        nargs="?",
        type=_delays,
        const=list(_DELAYS_MS),
        metavar="MS,MS",
        help="one run for each delay added to every query: measured beside predicted supply "
        f"(default: {','.join(map(str, _DELAYS_MS))})",
    )
    studies.add_argument(
        "--horizon-study",
        nargs="?",
        type=_horizons,
        const=list(_HORIZONS),
        metavar="S,S",
        help="one run for each number of rows executed of a chunk, with --inject-delay "
        f"(default: {','.join(map(str, _HORIZONS))}; {_HORIZON_DELAY})",
    )
    studies.add_argument(
        "--pacing-study", action="store_true", help="queries just in time against back to back"
    )
    studies.add_argument(
        "--verify-supply",
        action="store_true",
        help="runs in which many chunks come too late; status 1 where the prediction does not hold",
    )
    studies.add_argument(
        "--soak",
        nargs="?",
        type=_minutes,
        const=30.0,
        metavar="MINUTES",
        help="memory each minute, late control steps, losses; status 1 beyond a bound (default: 30)",
    )
    studies.add_argument(
        "--transport-check",
        nargs="?",
        choices=("profile", "default"),
        const="profile",
        help="no policy: how many frames of two cameras arrive and how long that takes, with the Fast DDS "
        "profile or with its default transport; status 1 beyond a bound",
    )


def _study(args: argparse.Namespace) -> dict[str, Any]:
    """The study that was asked for; empty: none."""
    if args.delay_study:
        return {"kind": "delay", "values": args.delay_study}
    if args.horizon_study:
        return {
            "kind": "horizon",
            "values": args.horizon_study,
            "delay": args.inject_delay or _HORIZON_DELAY,
        }
    if args.pacing_study:
        return {"kind": "pacing"}
    if args.verify_supply:
        return {"kind": "verify"}
    return {"kind": "soak", "minutes": args.soak} if args.soak else {}


def run(args: argparse.Namespace) -> int:
    """Prepare, then replace this process by the one that runs the demo; its exit status is the demo's."""
    if args.typed and _study(args):
        raise DemoUnavailable("--typed is for a run of one policy, not for a study")
    require(*(("rclpy",) if args.transport_check else SIMULATED))
    if args.transport_check:
        return become("transport_check", json.dumps(_transport_settings(args)))
    return become("demo_main", json.dumps(_settings(args)))


def _transport_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What `transport_check` reads: the size and rate of the demo's cameras."""
    return {
        "duration": args.duration or _RUN_S,
        "width": 640,
        "height": 480,
        "rate": 30.0,
        "profile": args.transport_check == "profile",
        "out": str(args.out.resolve()),
        "config": str(package_folder("config")),
    }


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What `demo_main` reads; checks the checkpoint against the simulated robot."""
    study = _study(args)
    folder, note = _policy(args, bool(study))
    checkpoint = load_checkpoint(folder)
    width, height = image_size(checkpoint)
    parameters: dict[str, dict[str, str]] = {name: {} for name in _NODES}
    parameters["robot_sim_node"] = {"image_width": str(width), "image_height": str(height)}
    parameters["policy_node"] = {"checkpoint": str(folder)}
    check_sampling(define_policy(checkpoint), args.num_steps, args.seed)
    if args.threads is not None:
        parameters["policy_node"]["suffix_threads" if args.hybrid else "threads"] = str(args.threads)
    for name in ("num_steps", "seed"):
        if (value := getattr(args, name)) is not None:
            parameters["policy_node"][name] = str(value)
    if args.mode is not None:
        parameters["chunk_executor_node"]["mode"] = args.mode
    if args.control_rate is not None:
        parameters["chunk_executor_node"]["control_rate"] = str(args.control_rate)
    if args.inject_delay:
        parameters["policy_node"]["inject_delay"] = args.inject_delay
    for node, name, value in args.param:
        parameters[node][name] = value
    return {
        "checkpoint": str(folder),
        "note": note or f"{checkpoint.type} from {folder}",
        "duration": args.duration or (_STUDY_S if study else _RUN_S),
        "instructions": (args.instruction or list(_INSTRUCTIONS))[:2],
        "parameters": parameters,
        "out": str(args.out.resolve()),
        "config": str(package_folder("config")),
        "study": study,
        "hybrid": args.hybrid,
        "typed": not study and (sys.stdin.isatty() if args.typed is None else args.typed),
    }


def _policy(args: argparse.Namespace, study: bool) -> tuple[Path, str]:
    """The folder of the policy, and, where it is not the user's, what to tell about it.

    Studies are of timing, which is that of a random policy as well.
    """
    if args.checkpoint is not None:
        if args.small or args.full:
            raise DemoUnavailable("--small and --full are for random policies, not for --checkpoint")
        return Path(args.checkpoint).resolve(), ""
    if not (study or args.hybrid or args.policy or args.small or args.full):
        _say(f"policy: {TRAINED_NOTE}")
        return TRAINED, TRAINED_NOTE
    policy = args.policy or _RANDOM
    small = args.small or (not args.full and (study or policy not in FULL_SIZE))
    folder = random_checkpoint(_say, policy, small)
    size = "small" if small else "full-size"
    note = f"{size} random, untrained {policy} (seed {SEED}): the arm moves without purpose"
    _say(f"policy: {note}")
    return folder, note


def _say(text: str) -> None:
    print(f"[demo] {text}", flush=True)


def _seconds(text: str) -> float:
    value = float(text)
    if not 1.0 <= value <= 86400.0:
        raise argparse.ArgumentTypeError(f"'{text}' is out of range, expected 1 to 86400 seconds")
    return value


def _minutes(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 1440.0:
        raise argparse.ArgumentTypeError(f"'{text}' is out of range, expected 0.1 to 1440 minutes")
    return value


def _delays(text: str) -> list[float]:
    values = [float(part) for part in text.split(",")]
    if not all(0.0 <= value <= 10_000.0 for value in values):
        raise argparse.ArgumentTypeError(f"'{text}' is out of range, expected 0 to 10000 milliseconds each")
    return values


def _horizons(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is out of range, expected 1 row or more each")
    return values


def _delay(text: str) -> str:
    try:
        return delay_distribution(text).text
    except SupplyError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parameter(text: str) -> tuple[str, str, str]:
    path, separator, value = text.partition("=")
    node, dot, name = path.partition(".")
    if not (separator and dot and name) or node not in _NODES:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no parameter, expected NODE.NAME=VALUE with NODE one of {', '.join(_NODES)}"
        )
    return node, name, value
