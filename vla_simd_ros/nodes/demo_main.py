"""The process that ``vla_simd demo`` becomes: its ROS domain and nodes, one run or a series."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from vla_simd_ros.nodes.demo_processes import ProcessError, ProcessGroup
from vla_simd_ros.nodes.demo_report import failure
from vla_simd_ros.nodes.demo_run import DemoError, DemoRun, DemoSettings
from vla_simd_ros.nodes.demo_study_run import run_study
from vla_simd_ros.nodes.demo_table import format_report


def free_domain() -> int:
    """A ROS domain that nobody on this machine uses: its first participant's port is free.

    The demo commands a robot; in the domain of a real one it could move that.
    """
    numbers = list(range(1, 100))
    random.shuffle(numbers)
    for number in numbers:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(("", 7410 + 250 * number))
            return number
    raise DemoError("ROS domains 1 to 99 are all in use on this machine, expected a free one")


def demo_environment(config: Path, domain: int) -> dict[str, str]:
    """What the nodes need in their environment, beside what this process has."""
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "FASTRTPS_DEFAULT_PROFILES_FILE": str(config / "fastdds_large_images.xml"),
        "PYTHONUNBUFFERED": "1",
    }


def run_demo(settings: DemoSettings, say: Callable[[str], None]) -> int:
    """Runs the demo and writes its results; 0 when rows of chunks were executed, or a study holds, else 1.

    Raises ProcessError or DemoError when a node dies or fails, KeyboardInterrupt on SIGINT and SIGTERM; the
    processes have ended by then.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    domain = free_domain()
    os.environ.update(demo_environment(settings.config, domain))
    say(f"ROS domain {domain}; to look on: ROS_DOMAIN_ID={domain} ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST")
    # SIGINT too: a process started in the background of a script ignores it otherwise.
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ProcessGroup(settings.out / "logs", os.environ) as group:
            if settings.study:
                return run_study(settings, group, say)
            return _run_once(settings, group, say)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_once(settings: DemoSettings, group: ProcessGroup, say: Callable[[str], None]) -> int:
    run = DemoRun(settings, group, say)
    try:
        report = run.execute()
        say("drawing the pictures")
        paths = run.write(report)
    finally:
        run.close()
    say("results\n\n" + format_report(report) + "\n")
    say(f"policy: {settings.note}")
    for path in paths:
        say(f"wrote {path}")
    problem = failure(report)
    if problem:
        say(f"FAILED: {problem}; logs are in {settings.out / 'logs'}")
        return 1
    return 0


def interrupt(*_: object) -> None:
    """For signals that end a run in order. Raises KeyboardInterrupt."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Runs the demo that one JSON argument describes; 0: the arm was driven, 1: not, 130: interrupted."""
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[demo {time.monotonic() - start:5.1f} s] {text}", flush=True)

    try:
        return run_demo(DemoSettings.from_json(arguments[0]), say)
    except (ProcessError, DemoError) as error:
        print(f"vla_simd demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("interrupted; all nodes have ended")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
