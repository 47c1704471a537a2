"""The chunk executor: action chunks and joint states in, one bounded command per control step out.

ros2 run vla_simd_ros chunk_executor_node --ros-args --params-file chunk_executor.yaml
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from vla_simd_ros.nodes.emergency_stop import EmergencyStop
from vla_simd_ros.nodes.executor_pipeline import ExecutorPipeline
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
from vla_simd_ros.nodes.parameters import ParameterError
from vla_simd_ros.nodes.pipeline_node import PipelineNode
from vla_simd_ros.nodes.process import run_node


class ChunkExecutorNode(PipelineNode[ExecutorPipeline]):
    """Executes action chunks while active, and brings the arm to rest before it does not.

    Args:
        node_options: passed on to the rclpy node.
    """

    def __init__(self, **node_options: Any) -> None:
        super().__init__("chunk_executor_node", "execution", PARAMETERS, (ParameterError,), **node_options)
        # Nothing but a release ends a hold, a new configuration neither.
        self._held = False
        # Beside the pipeline: a stop counts in every state of the lifecycle, and outlasts all of them.
        self._emergency = EmergencyStop(self, self._on_emergency_stop)

    def _make_pipeline(self, values: dict[str, Any]) -> ExecutorPipeline:
        return ExecutorPipeline(self, settings_from(values), self._held, self._emergency.in_force)

    def _on_emergency_stop(self, latched: bool) -> None:
        if self._pipeline is not None:
            self._pipeline.emergency_stop(latched)

    def _release(self) -> bool:
        if self._pipeline is not None:
            self._held = self._pipeline.held
        return super()._release()


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(ChunkExecutorNode, args)


if __name__ == "__main__":
    sys.exit(main())
