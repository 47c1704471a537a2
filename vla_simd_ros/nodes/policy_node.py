"""The policy node: cameras, joint states and an instruction in, time-stamped action chunks out.

ros2 run vla_simd_ros policy_node --ros-args --params-file policy_node.yaml -p checkpoint:=FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vla_simd_ros.inference import Policy
from vla_simd_ros.nodes.clock_jumps import on_clock_jump
from vla_simd_ros.nodes.diagnostics import DiagnosticsPublisher, Level, Status
from vla_simd_ros.nodes.episodes import EpochCounter
from vla_simd_ros.nodes.parameters import NodeParameters, ParameterError
from vla_simd_ros.nodes.policy_pipeline import PolicyPipeline
from vla_simd_ros.nodes.policy_settings import PARAMETERS, instruction_problem, load_options, settings_for
from vla_simd_ros.nodes.process import run_node
from vla_simd_ros.nodes.transitions import SUCCESS, attempt, refuse_impossible_transitions

STOP_TIMEOUT_S = 0.5
DIAGNOSTICS_PERIOD_S = 1.0

# A checkpoint, an instruction or a setting that does not fit is a ValueError of one kind or another.
EXPECTED_ERRORS = (ParameterError, ValueError, OSError, ImportError)


class PolicyNode(LifecycleNode):
    """Loads a policy on configure and queries it continuously while active.

    Args:
        load: makes the policy: called with the checkpoint folder and options, like ``Policy.load``.
        node_options: passed on to the rclpy node.
    """

    def __init__(self, load: Callable[..., Any] = Policy.load, **node_options: Any) -> None:
        super().__init__("policy_node", **node_options)
        self._load = load
        refuse_impossible_transitions(self)
        self._node_parameters = NodeParameters(self, PARAMETERS)
        self._diagnostics = DiagnosticsPublisher(self)
        self._epochs = EpochCounter()
        self._pipeline: PolicyPipeline | None = None
        self._jumps = on_clock_jump(self.get_clock(), self._clock_jumped)
        # Diagnostics go on when simulated time stands still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(DIAGNOSTICS_PERIOD_S, self._publish_diagnostics, clock=steady)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the policy, warm it up, and create the topics."""
        return attempt(self, "configure", self._configure, EXPECTED_ERRORS, self._release)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start querying."""
        return attempt(self, "activate", self._present.activate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop querying; keep the policy and the instruction."""
        return attempt(self, "deactivate", self._present.deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the weights and take the topics down."""
        self._release()
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free everything."""
        self._release()
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an unforeseen error: back to unconfigured, from where the node can be used again."""
        self._release()
        return SUCCESS

    def stop(self) -> bool:
        """Before the process ends; false when a query is still inside the engine."""
        return self._release()

    @property
    def _present(self) -> PolicyPipeline:
        assert self._pipeline is not None  # the lifecycle allows it in configured states only
        return self._pipeline

    def _configure(self) -> None:
        start = time.monotonic()
        values = self._node_parameters.read()
        options = load_options(values)
        self.get_logger().info(f"loading {values['checkpoint']}")
        policy = self._load(values["checkpoint"], **options)
        try:
            settings = settings_for(values, policy.spec)
            instruction = self._first_instruction(policy, values["instruction"])
            policy.warm_up()
            self._pipeline = PolicyPipeline(self, policy, settings, self._epochs, instruction)
        except BaseException:
            policy.close()
            raise
        self.get_logger().info(f"{policy.name} loaded and warm after {time.monotonic() - start:.1f} s")

    def _first_instruction(self, policy: Any, text: str) -> str | None:
        """The parameter's instruction, set here so that its programs are compiled now; None without one."""
        if not text or not policy.spec.uses_instruction:
            return None
        if problem := instruction_problem(text):
            raise ParameterError(f"instruction: {problem}")
        policy.set_instruction(text)
        return text

    def _release(self) -> bool:
        pipeline, self._pipeline = self._pipeline, None
        return pipeline is None or pipeline.close(STOP_TIMEOUT_S)

    def _clock_jumped(self) -> None:
        if self._pipeline is not None:
            self.get_logger().warning("the clock has jumped: observations are dropped, a new epoch starts")
            self._pipeline.clock_jumped()

    def _publish_diagnostics(self) -> None:
        if self._pipeline is None:
            self._diagnostics.publish(Status("policy", Level.WARN, ["not configured"]))
        else:
            self._diagnostics.publish(*self._pipeline.statuses())


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(PolicyNode, args)


if __name__ == "__main__":
    sys.exit(main())
