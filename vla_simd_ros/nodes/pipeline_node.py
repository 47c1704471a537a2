"""A lifecycle node whose work is done by a pipeline that exists while the node is configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vla_simd_ros.nodes.clock_jumps import on_clock_jump
from vla_simd_ros.nodes.diagnostics import DiagnosticsPublisher, Level, Status
from vla_simd_ros.nodes.parameters import NodeParameters, Param
from vla_simd_ros.nodes.transitions import SUCCESS, attempt, refuse_impossible_transitions

DIAGNOSTICS_PERIOD_S = 1.0


class Pipeline(Protocol):
    """What a configured node does."""

    def activate(self) -> None:
        """Start working."""

    def deactivate(self) -> None:
        """Stop working; keep what has been loaded and counted."""

    def clock_jumped(self) -> None:
        """Forget everything that carries a time of before the jump."""

    def close(self) -> bool:
        """Take the topics down; false when native code is still running."""

    def statuses(self) -> list[Status]:
        """Diagnostics."""


PipelineT = TypeVar("PipelineT", bound=Pipeline)


class PipelineNode(LifecycleNode, Generic[PipelineT]):
    """The lifecycle around a pipeline: parameters, transitions, clock jumps and diagnostics.

    Args:
        name: of the node.
        part: of the robot that diagnostics name while there is no pipeline.
        parameters: declared at once, read when the node is configured.
        expected: errors of configuration whose text is the whole reason; others are logged with a traceback.
        node_options: passed on to the rclpy node.
    """

    def __init__(
        self,
        name: str,
        part: str,
        parameters: Sequence[Param],
        expected: tuple[type[Exception], ...],
        **node_options: Any,
    ) -> None:
        super().__init__(name, **node_options)
        refuse_impossible_transitions(self)
        self._node_parameters = NodeParameters(self, parameters, self._change)
        self._expected = expected
        self._part = part
        self._pipeline: PipelineT | None = None
        self._diagnostics = DiagnosticsPublisher(self)
        self._jumps = on_clock_jump(self.get_clock(), self._clock_jumped)
        # Diagnostics go on when simulated time stands still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(DIAGNOSTICS_PERIOD_S, self._publish_diagnostics, clock=steady)

    def _make_pipeline(self, values: dict[str, Any]) -> PipelineT:
        """The pipeline for these values of the parameters."""
        raise NotImplementedError

    def _change(self, changes: Mapping[str, Any]) -> None:
        """Take other values of live parameters while configured; raises ParameterError, and takes none, where
        they cannot be had. For nodes that have live parameters."""
        raise NotImplementedError

    def _release(self) -> bool:
        """Close the pipeline, if there is one; false when native code is still running."""
        pipeline, self._pipeline = self._pipeline, None
        return pipeline is None or pipeline.close()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Check the parameters, load what they name, and create the topics."""
        return attempt(self, "configure", self._configure, self._expected, self._release)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start working."""
        return attempt(self, "activate", self._present.activate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working; keep what has been loaded and counted."""
        return attempt(self, "deactivate", self._present.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free everything and take the topics down."""
        self._release()
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free everything and take the topics down."""
        self._release()
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an unforeseen error: back to unconfigured, from where the node can be used again."""
        self._release()
        return SUCCESS

    def stop(self) -> bool:
        """Before the process ends: bring everything to rest; false when native code is still running."""
        return self._release()

    @property
    def _present(self) -> PipelineT:
        assert self._pipeline is not None  # the lifecycle allows it in configured states only
        return self._pipeline

    def _configure(self) -> None:
        self._pipeline = self._make_pipeline(self._node_parameters.read())

    def _clock_jumped(self) -> None:
        if self._pipeline is not None:
            self.get_logger().warning("the clock has jumped: what is older is dropped, the arm holds")
            self._pipeline.clock_jumped()

    def _publish_diagnostics(self) -> None:
        if self._pipeline is None:
            self._diagnostics.publish(Status(self._part, Level.WARN, ["not configured"]))
        else:
            self._diagnostics.publish(*self._pipeline.statuses())
