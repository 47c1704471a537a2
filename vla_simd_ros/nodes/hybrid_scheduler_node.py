"""The policy node's job on two executors at once, frames overlapping, with a cut between them that moves.

ros2 run vla_simd_ros hybrid_scheduler_node --ros-args --params-file hybrid_scheduler.yaml \\
    -p checkpoint:=FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vla_simd_ros.hybrid.cut_mover import CutMover, LoadSource
from vla_simd_ros.hybrid.hybrid_loading import HybridLoader, MakeExecutor
from vla_simd_ros.hybrid.machine_state import MachineState
from vla_simd_ros.inference import make_executor
from vla_simd_ros.nodes.hybrid_pipeline import HybridParts, HybridPipeline
from vla_simd_ros.nodes.hybrid_settings import PARAMETERS, hybrid_settings
from vla_simd_ros.nodes.policy_node import Loaded, PolicyNode
from vla_simd_ros.nodes.process import run_node


def machine_state(cpus: Sequence[int]) -> LoadSource:
    """What others take of this machine: of its first GPU, and of ``cpus``."""
    return MachineState.of_this(cpus=cpus)


class HybridSchedulerNode(PolicyNode):
    """A policy node whose policy is cut in two.

    Args:
        make: makes an executor of a name and settings.
        machine: makes what says how busy the machine is, of the suffix's CPUs.
        node_options: passed on to the rclpy node.
    """

    def __init__(
        self,
        make: MakeExecutor = make_executor,
        machine: Callable[[Sequence[int]], LoadSource] = machine_state,
        **node_options: Any,
    ) -> None:
        super().__init__(name="hybrid_scheduler_node", parameters=PARAMETERS, **node_options)
        self._make = make
        self._machine = machine

    def _load_policy(self, values: dict[str, Any]) -> Loaded:
        settings = hybrid_settings(values)
        loader = HybridLoader(settings.options, os.sched_getaffinity(0), self._make, self.get_logger().info)
        mover = CutMover(loader.controller(**settings.controller), self._machine(loader.places[1].cpus))
        hybrid = loader.hybrid(lambda: mover.blocks, mover.prefix_ended)
        zone = loader.zone
        first, second = (list(place.cpus) for place in loader.places)
        self.get_logger().info(
            f"{settings.options.prefix[0]} on the CPUs {first} up to '{zone.name(zone.cut)}', "
            f"{settings.options.suffix[0]} on {second} from there; the cut may be after {zone.first} to "
            f"{zone.last} blocks"
        )
        parts = HybridParts(loader, hybrid, mover, settings.restarts, settings.late_prefix)
        return Loaded(hybrid.policy, hybrid.warm_up, partial(HybridPipeline, parts))


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(HybridSchedulerNode, args)


if __name__ == "__main__":
    sys.exit(main())
