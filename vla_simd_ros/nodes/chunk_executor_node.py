"""The chunk executor: action chunks and joint states in, one bounded command per control step out.

ros2 run vla_simd_ros chunk_executor_node --ros-args --params-file chunk_executor.yaml
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vla_simd_ros.nodes.clock_jumps import on_clock_jump
from vla_simd_ros.nodes.diagnostics import DiagnosticsPublisher, Level, Status
from vla_simd_ros.nodes.executor_pipeline import ExecutorPipeline
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
from vla_simd_ros.nodes.parameters import NodeParameters, ParameterError
from vla_simd_ros.nodes.process import run_node
from vla_simd_ros.nodes.transitions import SUCCESS, attempt, refuse_impossible_transitions

DIAGNOSTICS_PERIOD_S = 1.0


class ChunkExecutorNode(LifecycleNode):
    """Executes action chunks while active.

    Args:
        node_options: passed on to the rclpy node.
    """

    def __init__(self, **node_options: Any) -> None:
        super().__init__("chunk_executor_node", **node_options)
        refuse_impossible_transitions(self)
        self._node_parameters = NodeParameters(self, PARAMETERS)
        self._diagnostics = DiagnosticsPublisher(self)
        self._pipeline: ExecutorPipeline | None = None
        # Nothing but a release ends a hold, a new configuration neither.
        self._held = False
        self._jumps = on_clock_jump(self.get_clock(), self._clock_jumped)
        # Diagnostics go on when simulated time stands still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(DIAGNOSTICS_PERIOD_S, self._publish_diagnostics, clock=steady)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Check the parameters and create the topics."""
        return attempt(self, "configure", self._configure, (ParameterError,), self._release)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start commanding with the next chunk."""
        return attempt(self, "activate", self._present.activate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Bring the arm to rest, then command nothing; counters and epoch stay."""
        return attempt(self, "deactivate", self._present.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take the topics down."""
        self._release()
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Bring the arm to rest and take the topics down."""
        self._release()
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an unforeseen error: back to unconfigured, from where the node can be used again."""
        self._release()
        return SUCCESS

    def stop(self) -> bool:
        """Before the process ends: bring the arm to rest."""
        self._release()
        return True

    @property
    def _present(self) -> ExecutorPipeline:
        assert self._pipeline is not None  # the lifecycle allows it in configured states only
        return self._pipeline

    def _configure(self) -> None:
        self._pipeline = ExecutorPipeline(self, settings_from(self._node_parameters.read()), self._held)

    def _release(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            self._held = pipeline.held
            pipeline.close()

    def _clock_jumped(self) -> None:
        if self._pipeline is not None:
            self.get_logger().warning("the clock has jumped: rows are dropped, the arm holds")
            self._pipeline.clock_jumped()

    def _publish_diagnostics(self) -> None:
        if self._pipeline is None:
            self._diagnostics.publish(Status("execution", Level.WARN, ["not configured"]))
        else:
            self._diagnostics.publish(*self._pipeline.statuses())


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(ChunkExecutorNode, args)


if __name__ == "__main__":
    sys.exit(main())
