"""``vla_simd record``: demonstrations of the simulated tasks as a LeRobot dataset."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

from vla_simd_ros.cli.arguments import seed

_PROGRESS_S = 3.0


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "record",
        help="record demonstrations of the simulated tasks",
        description="Let a scripted expert solve the simulated arm's tasks, each instruction as often as "
        "the others, and write what the cameras see, the joints and the commands as a dataset in LeRobot's "
        "format v3. Some demonstrations start away from home, and in some the arm is pushed, so that they "
        "show how to recover. Those that fail are left out.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the dataset's folder")
    parser.add_argument("--episodes", type=int, default=120, metavar="N", help="how many (default: 120)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of starts and pushes (default: 0)")
    parser.add_argument(
        "--size", type=_size, default=(96, 128), metavar="HxW", help="pictures in pixels (default: 96x128)"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.08,
        metavar="RAD",
        help="by how much the joints' targets are pushed at most; 0: never (default: 0.08)",
    )
    parser.add_argument(
        "--missed",
        type=float,
        default=0.3,
        metavar="SHARE",
        help="of the demonstrations: those that begin in the middle of a grasp that misses (default: 0.3)",
    )
    parser.add_argument("--video", action="store_true", help="pictures as MP4 (AV1) instead of PNG")
    parser.add_argument("--resume", action="store_true", help="go on with a dataset until it has N episodes")
    parser.add_argument("--renderer", default="auto", help="auto, egl or opencv (default: auto)")


def run(args: argparse.Namespace) -> int:
    """Record, telling at least every few seconds how far it is."""
    from vla_simd_ros.sim.demonstrations import Disturbances
    from vla_simd_ros.sim.recording import Recording, Settings

    disturbances = Disturbances(args.noise, args.missed)
    settings = Settings(args.episodes, args.seed, args.size, disturbances, args.video, args.renderer)
    recording = Recording(args.out, settings, resume=args.resume)
    if recording.episodes:
        print(f"going on after {recording.episodes} episodes", flush=True)
    began = told = time.monotonic()
    first = recording.episodes
    for done in recording.record():
        now = time.monotonic()
        if now - told >= _PROGRESS_S:
            left = (args.episodes - done) * (now - began) / (done - first)
            counts = f"{done} of {args.episodes} episodes, {recording.failed} failed"
            print(f"{counts}; {left:.0f} s left", flush=True)
            told = now
    print(
        f"wrote {recording.episodes} episodes, {recording.frames} frames, to {args.out}; "
        f"{recording.failed} demonstrations failed and were left out"
    )
    return 0


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no size, expected HEIGHTxWIDTH like 96x128")
    return int(found[1]), int(found[2])
