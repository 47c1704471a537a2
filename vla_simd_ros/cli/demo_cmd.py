"""``vla_simd demo``: the simulated robot, the policy and the chunk executor, run for a while and reported on.

This part needs no ROS: it prepares the checkpoint and the settings, then becomes the process that runs them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.package_files import package_folder
from vla_simd_ros.sim.demo_policy import SEED, image_size, random_checkpoint

_NODES = ("robot_sim_node", "policy_node", "chunk_executor_node")
_INSTRUCTIONS = ("pick up the red cube", "push the blue cube to the left")


class DemoUnavailable(RuntimeError):
    """Something that the demo needs is not there; the message says what, and how to get it."""


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "demo",
        help="run a simulated robot with a policy and report what happened",
        description="Run a simulated SO-101 with two cameras, the policy node and the chunk executor; "
        "print a table, draw a picture. Without a checkpoint, a random untrained IMPACT drives the arm.",
    )
    parser.add_argument(
        "--duration", type=_seconds, default=60.0, metavar="S", help="seconds to run (default: 60)"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="LeRobot pretrained_model folder to run"
    )
    parser.add_argument(
        "--instruction",
        action="append",
        metavar="TEXT",
        help="what the arm is to do; given twice, the second one replaces the first half-way",
    )
    parser.add_argument(
        "--mode", choices=("lagged", "time_aligned"), help="how chunks are executed (default: what C2 allows)"
    )
    parser.add_argument("--control-rate", type=float, metavar="HZ", help="commands per second (default: 30)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the engine (default: all cores)")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        type=_parameter,
        metavar="NODE.NAME=VALUE",
        help=f"any other parameter; NODE is one of {', '.join(_NODES)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="folder of results (default: out/demo)",
    )


def run(args: argparse.Namespace) -> int:
    """Prepare, then replace this process by the one that runs the demo; its exit status is the demo's."""
    for module, remedy in (
        (
            "rclpy",
            "source a ROS 2 installation (source /opt/ros/jazzy/setup.bash), or use: ./run vla_simd demo",
        ),
        ("mujoco", "pip install 'vla_simd_ros[sim]'"),
        ("matplotlib", "pip install 'vla_simd_ros[sim]'"),
    ):
        if importlib.util.find_spec(module) is None:
            raise DemoUnavailable(f"the demo needs the Python package {module}: {remedy}")
    settings = _settings(args)
    sys.stdout.flush()
    command = [sys.executable, "-m", "vla_simd_ros.nodes.demo_run", json.dumps(settings)]
    os.execv(sys.executable, command)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What `demo_run` reads; checks the checkpoint against the simulated robot."""
    if args.checkpoint is None:
        folder = random_checkpoint(_say)
        note = f"random, untrained IMPACT (seed {SEED}): the arm moves without purpose"
        _say(f"policy: {note}")
    else:
        folder = args.checkpoint.resolve()
        note = ""
    checkpoint = load_checkpoint(folder)
    width, height = image_size(checkpoint)
    parameters: dict[str, dict[str, str]] = {name: {} for name in _NODES}
    parameters["robot_sim_node"] = {"image_width": str(width), "image_height": str(height)}
    parameters["policy_node"]["checkpoint"] = str(folder)
    if args.threads is not None:
        parameters["policy_node"]["threads"] = str(args.threads)
    if args.mode is not None:
        parameters["chunk_executor_node"]["mode"] = args.mode
    if args.control_rate is not None:
        parameters["chunk_executor_node"]["control_rate"] = str(args.control_rate)
    for node, name, value in args.param:
        parameters[node][name] = value
    return {
        "checkpoint": str(folder),
        "note": note or f"{checkpoint.type} from {folder}",
        "duration": args.duration,
        "instructions": (args.instruction or list(_INSTRUCTIONS))[:2],
        "parameters": parameters,
        "out": str(args.out.resolve()),
        "config": str(package_folder("config")),
    }


def _say(text: str) -> None:
    print(f"[demo] {text}", flush=True)


def _seconds(text: str) -> float:
    value = float(text)
    if not 1.0 <= value <= 86400.0:
        raise argparse.ArgumentTypeError(f"'{text}' is out of range, expected 1 to 86400 seconds")
    return value


def _parameter(text: str) -> tuple[str, str, str]:
    path, separator, value = text.partition("=")
    node, dot, name = path.partition(".")
    if not (separator and dot and name) or node not in _NODES:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no parameter, expected NODE.NAME=VALUE with NODE one of {', '.join(_NODES)}"
        )
    return node, name, value
