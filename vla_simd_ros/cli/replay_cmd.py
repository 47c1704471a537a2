"""``vla_simd replay``: a recorded run computed again, and compared with what was recorded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

_DIFFERENT = 1


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "replay",
        help="compute a recorded run again and compare",
        description="Read a rosbag2 recording with cameras, joint states and chunks, make every chunk again "
        "from the frames and joint states that its query had, and compare bit for bit. With the executor's "
        "parameters, run its control loop under the recording's clock and compare the commands too. "
        "Exit status 1: something is different.",
    )
    parser.add_argument("bag", type=Path, metavar="BAG", help="the recording's folder, or its .mcap or .db3")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, metavar="DIR", help="the policy of the recorded run"
    )
    parser.add_argument(
        "--policy-params", type=Path, metavar="FILE", help="parameter file of its policy node (YAML)"
    )
    parser.add_argument(
        "--executor-params", type=Path, metavar="FILE", help="parameter file of its executor: commands too"
    )
    parser.add_argument(
        "--namespace", default="", metavar="NS", help="only topics in it, of a recording of several robots"
    )


def run(args: argparse.Namespace) -> int:
    """Replay and print the comparison."""
    from vla_simd_ros.inference import Policy
    from vla_simd_ros.nodes.policy_settings import PARAMETERS, load_options, settings_for
    from vla_simd_ros.recording.bag import Bag
    from vla_simd_ros.recording.parameter_files import parameters_from
    from vla_simd_ros.recording.replay import in_words, replay

    values = parameters_from(args.policy_params, "policy_node", PARAMETERS)
    values["checkpoint"] = str(args.checkpoint)
    loop = _loop(args.executor_params) if args.executor_params is not None else None
    with Bag(args.bag, args.namespace) as bag:
        policy = Policy.load(args.checkpoint, **load_options(values))
        try:
            comparison = replay(bag, policy, settings_for(values, policy.spec), loop)
        finally:
            policy.close()
    print(in_words(comparison))
    return 0 if comparison.same else _DIFFERENT


def _loop(path: Path) -> Any:
    """The control loop's settings; the executor's parameters name ROS messages, so this part needs ROS."""
    from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
    from vla_simd_ros.recording.parameter_files import parameters_from

    return settings_from(parameters_from(path, "chunk_executor_node", PARAMETERS)).loop
