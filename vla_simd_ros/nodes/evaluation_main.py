"""The process that ``vla_simd evaluate --ros`` becomes: its ROS domain, its nodes, and the tables."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from vla_simd_ros.benchmarks.conditions import describe_checkpoint, describe_machine
from vla_simd_ros.evaluation.report import tables, to_json
from vla_simd_ros.evaluation.session import Outcome, Say
from vla_simd_ros.evaluation.through_nodes import NodeRequest
from vla_simd_ros.nodes.demo_main import demo_environment, free_domain, interrupt
from vla_simd_ros.nodes.demo_processes import ProcessError, ProcessGroup
from vla_simd_ros.nodes.demo_run import DemoError
from vla_simd_ros.nodes.evaluation_run import EvaluationRun


def run_evaluation(asked: NodeRequest, say: Say) -> list[Outcome]:
    """Start the nodes, run all episodes, and end the nodes.

    Raises ProcessError or DemoError when a node dies or fails, KeyboardInterrupt on SIGINT and SIGTERM; the
    processes have ended by then.
    """
    domain = free_domain()
    os.environ.update(demo_environment(Path(asked.config), domain))
    say(f"ROS domain {domain}; logs of the nodes are in {asked.out}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    with ProcessGroup(Path(asked.out), os.environ) as group:
        run = EvaluationRun(asked, group, say)
        try:
            return run.evaluate()
        finally:
            run.close()


def main(arguments: Sequence[str]) -> int:
    """Run what one JSON argument asks for; 0: all episodes ran, 1: a node failed, 130: interrupted."""
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:5.1f} s] {text}", file=sys.stderr, flush=True)

    asked = NodeRequest.from_json(arguments[0])
    machine = describe_machine()
    try:
        outcomes = run_evaluation(asked, say)
    except (ProcessError, DemoError) as error:
        print(f"vla_simd evaluate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("interrupted; all nodes have ended")
        return 130
    print(tables(outcomes))
    if asked.results:
        checkpoints = [describe_checkpoint(Path(folder)) for folder in asked.request.checkpoints]
        conditions = {"machine": machine, "checkpoints": checkpoints, "through": "nodes, in real time"}
        Path(asked.results).write_text(json.dumps(to_json(outcomes, conditions), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
