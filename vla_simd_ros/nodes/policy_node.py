"""The policy node: cameras, joint states and an instruction in, time-stamped action chunks out.

ros2 run vla_simd_ros policy_node --ros-args --params-file policy_node.yaml -p checkpoint:=FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.inference import Policy
from vla_simd_ros.nodes.episodes import EpochCounter
from vla_simd_ros.nodes.parameters import Param, ParameterError
from vla_simd_ros.nodes.pipeline_node import PipelineNode
from vla_simd_ros.nodes.policy_pipeline import PolicyPipeline
from vla_simd_ros.nodes.policy_settings import (
    PARAMETERS,
    checkpoint_named,
    instruction_problem,
    load_options,
    settings_for,
)
from vla_simd_ros.nodes.process import run_node
from vla_simd_ros.nodes.query_decoding import QueryDecoding
from vla_simd_ros.nodes.query_sampling import QuerySampling
from vla_simd_ros.nodes.topic_names import check_topics

# A checkpoint, an instruction or a setting that does not fit is a ValueError of one kind or another.
EXPECTED_ERRORS = (ParameterError, ValueError, OSError, ImportError)


@dataclass(frozen=True)
class Loaded:
    """A policy, what runs all of it once, and what makes a pipeline of it: called as PolicyPipeline is."""

    policy: Any
    warm_up: Callable[[], None]
    pipeline: Callable[..., PolicyPipeline]


class PolicyNode(PipelineNode[PolicyPipeline]):
    """Loads a policy on configure and queries it while active.

    Args:
        load: makes the policy: called with the checkpoint folder and options, like ``Policy.load``.
        name: of the node.
        parameters: what it takes.
        node_options: passed on to the rclpy node.
    """

    def __init__(
        self,
        load: Callable[..., Any] = Policy.load,
        name: str = "policy_node",
        parameters: Sequence[Param] = PARAMETERS,
        **node_options: Any,
    ) -> None:
        super().__init__(name, "policy", parameters, EXPECTED_ERRORS, **node_options)
        self._load = load
        self._epochs = EpochCounter()

    def _load_policy(self, values: dict[str, Any]) -> Loaded:
        """The policy that the parameters name."""
        policy = self._load(values["checkpoint"], **load_options(values))
        return Loaded(policy, policy.warm_up, PolicyPipeline)

    def _make_pipeline(self, values: dict[str, Any]) -> PolicyPipeline:
        start = time.monotonic()
        checkpoint_named(values)
        self.get_logger().info(f"loading {values['checkpoint']}")
        loaded = self._load_policy(values)
        policy = loaded.policy
        try:
            settings = settings_for(values, policy.spec)
            sampling, decoding = QuerySampling(policy, values), QueryDecoding(policy, values)
            decoding.apply(policy)
            check_topics(self, settings.cameras)
            instruction = self._first_instruction(policy, values["instruction"])
            loaded.warm_up()
            pipeline = loaded.pipeline(self, policy, settings, sampling, decoding, self._epochs, instruction)
        except BaseException:
            policy.close()
            raise
        self._say_loaded(policy, time.monotonic() - start)
        return pipeline

    def _say_loaded(self, policy: Any, seconds: float) -> None:
        self.get_logger().info(f"{policy.name} loaded and warm after {seconds:.1f} s")
        if policy.int8:
            self.get_logger().info(f"in int8: {', '.join(policy.int8)}")
        if policy.spec.temporal_ensemble_coeff is not None:
            self.get_logger().info(
                "the checkpoint's chunks were meant to be averaged: set the executor's blending to "
                f"temporal_ensemble and ensemble_coefficient to {policy.spec.temporal_ensemble_coeff}"
            )

    def _change(self, changes: Mapping[str, Any]) -> None:
        if self._pipeline is not None:
            self._pipeline.change(changes)

    def _first_instruction(self, policy: Any, text: str) -> str | None:
        """The parameter's instruction, set here so that its programs are compiled now; None without one."""
        if not text or not policy.spec.uses_instruction:
            return None
        if problem := instruction_problem(text):
            raise ParameterError(f"instruction: {problem}")
        policy.set_instruction(text)
        return text


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(PolicyNode, args)


if __name__ == "__main__":
    sys.exit(main())
