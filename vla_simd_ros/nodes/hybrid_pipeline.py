"""Everything the hybrid scheduler has while it is configured: the policy node's part, on two executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vla_simd_ros.hybrid.cut_mover import CutMover
from vla_simd_ros.hybrid.hybrid_loading import HybridLoader
from vla_simd_ros.hybrid.hybrid_policy import HybridPolicy
from vla_simd_ros.hybrid.pipeline_supervisor import RestartSettings
from vla_simd_ros.msg import HybridState
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.diagnostics import Status
from vla_simd_ros.nodes.frame_stages import FrameStages
from vla_simd_ros.nodes.hybrid_report import HybridReport
from vla_simd_ros.nodes.hybrid_worker import HybridWorker
from vla_simd_ros.nodes.policy_pipeline import PolicyPipeline, Worker


@dataclass(frozen=True, eq=False)
class HybridParts:
    """What there is besides a policy node's: the loaded policy, what makes others, and how it is run."""

    loader: HybridLoader
    policy: HybridPolicy
    mover: CutMover
    restarts: RestartSettings
    late_prefix: bool


class HybridPipeline(PolicyPipeline):
    """A policy node's pipeline whose frames overlap on two executors.

    Args:
        parts: see there.
        arguments: those of PolicyPipeline.
    """

    def __init__(self, parts: HybridParts, *arguments: Any) -> None:
        self._parts = parts
        super().__init__(*arguments)

    def _create_interfaces(self) -> None:
        super()._create_interfaces()
        self._states = self._node.create_publisher(HybridState, "hybrid_state", qos.STATE)

    def _start_worker(self) -> Worker:
        parts, runner = self._parts, self._runner
        hybrid = HybridWorker(
            runner,
            FrameStages(parts.policy, runner),
            lambda: FrameStages(
                parts.loader.hybrid(lambda: parts.mover.blocks, parts.mover.prefix_ended), runner
            ),
            lambda: FrameStages(parts.loader.whole(), runner),
            parts.restarts,
            parts.mover,
            self._publish_state,
            parts.late_prefix,
        )
        self._report = HybridReport(hybrid.supervisor, parts.mover, parts.loader, parts.restarts)
        return hybrid

    def close(self) -> bool:
        """Take the topics down and free the policy; false when a running stage has yet to free it."""
        idle = super().close()
        self._node.destroy_publisher(self._states)
        return idle

    def statuses(self) -> list[Status]:
        """Diagnostics."""
        return [*super().statuses(), self._report.status()]

    def _publish_state(self) -> None:
        if self._active:
            self._states.publish(self._report.message(self._node.get_clock().now().to_msg()))
