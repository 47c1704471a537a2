"""What the hybrid scheduler tells: its state as a message, and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from builtin_interfaces.msg import Time

from vla_simd_ros.hybrid.cut_mover import CutMover
from vla_simd_ros.hybrid.hybrid_loading import HybridLoader
from vla_simd_ros.hybrid.pipeline_supervisor import Mode, PipelineSupervisor, RestartSettings
from vla_simd_ros.msg import HybridState
from vla_simd_ros.nodes.diagnostics import Level, Status

_MS = 1e3
_MODES = {
    Mode.PIPELINE: HybridState.PIPELINE,
    Mode.FALLBACK: HybridState.FALLBACK,
    Mode.STOPPED: HybridState.STOPPED,
}


@dataclass(frozen=True, eq=False)
class HybridReport:
    """The parts of a hybrid policy that have something to tell."""

    supervisor: PipelineSupervisor
    mover: CutMover
    loader: HybridLoader
    restarts: RestartSettings

    def message(self, stamp: Time) -> HybridState:
        """The state now."""
        supervisor, mover, zone = self.supervisor, self.mover, self.loader.zone
        counts = supervisor.counts
        message = HybridState(
            mode=_MODES[supervisor.mode],
            waiting=supervisor.waiting,
            reason=supervisor.reason,
            restarts=supervisor.restarts,
            restart_limit=self.restarts.limit,
            blocks=mover.blocks,
            after=zone.name(mover.blocks),
            zone_first=zone.first,
            zone_last=zone.last,
            moves=mover.moves,
            latency_ms=mover.latency_s * _MS,
            interval_ms=mover.interval_s * _MS,
            predicted_interval_ms=mover.predicted_s * _MS,
            gpu_load=_known(mover.loads.gpu),
            cpu_load=_known(mover.loads.cpu),
            backlog=counts.under_way,
            frames_submitted=counts.submitted,
            frames_finished=counts.finished,
            drop_reasons=[reason.value for reason in counts.dropped],
            drop_counts=list(counts.dropped.values()),
        )
        message.header.stamp = stamp
        message.prefix_bytes, message.suffix_bytes = self.loader.resident_bytes
        self._last_frame(message)
        return message

    def status(self) -> Status:
        """The same for diagnostics, as far as it matters there."""
        supervisor, mover, zone = self.supervisor, self.mover, self.loader.zone
        status = Status("hybrid pipeline")
        reason = supervisor.reason
        if supervisor.mode is Mode.STOPPED:
            status.add(Level.ERROR, reason)
        elif supervisor.mode is Mode.FALLBACK:
            status.add(Level.WARN, f"the whole policy computes on one executor: {reason}")
        if supervisor.waiting and reason:
            status.add(Level.ERROR, f"waiting to be started again: {reason}")
        counts = supervisor.counts
        status.values.update(
            {
                "mode": supervisor.mode.value,
                "cut after": f"{mover.blocks} blocks ({zone.name(mover.blocks)})",
                "dynamic zone": f"{zone.first} to {zone.last} blocks",
                "moves": mover.moves,
                "interval, median ms": mover.interval_s * _MS,
                "interval expected, ms": mover.predicted_s * _MS,
                "restarts": supervisor.restarts,
                "last failure": reason,
                "frames submitted": counts.submitted,
                "frames finished": counts.finished,
                **{f"frames dropped: {drop.value}": number for drop, number in counts.dropped.items()},
            }
        )
        return status

    def _last_frame(self, message: HybridState) -> None:
        answer = self.mover.answer
        if answer is None:
            message.prefix_ms = message.handover_ms = message.suffix_ms = math.nan
            return
        message.frame_blocks = answer.blocks
        message.prefix_ms, message.suffix_ms = answer.prefix_s * _MS, answer.suffix_s * _MS
        message.handover_ms = answer.query.timing.handover_ms


def _known(load: float | None) -> float:
    return math.nan if load is None else load
