"""``vla_simd report``: what a recorded run (rosbag2) shows, as one HTML file or picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "report",
        help="report on a recorded run",
        description="Read a rosbag2 recording (MCAP or sqlite3) of the nodes' topics and write one HTML file "
        "or picture: observations, queries, chunks and commands over time, ages, the latency budget, and "
        "every starvation with its cause. Needs no ROS.",
    )
    parser.add_argument("bag", type=Path, metavar="BAG", help="the recording's folder, or its .mcap or .db3")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write: .html or .png (default: out/report/NAME.html)",
    )
    parser.add_argument(
        "--namespace", default="", metavar="NS", help="only topics in it, of a recording of several robots"
    )


def run(args: argparse.Namespace) -> int:
    """Write the report and print it in words."""
    from vla_simd_ros.recording.report import check_suffix, write_report
    from vla_simd_ros.recording.run import read_run

    name = args.bag.resolve().stem
    out: Path = args.out or Path("out/report") / f"{name}.html"
    check_suffix(out)
    print(write_report(read_run(args.bag, args.namespace), f"vla_simd run: {name}", out))
    print(f"\nwrote {out}")
    return 0
