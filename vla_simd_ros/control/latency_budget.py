"""Where the time from an observation to the first command made from it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

QUERY_STAGES = (
    "transport_ms",
    "sync_ms",
    "wait_ms",
    "preprocess_ms",
    "query_ms",
    "handover_ms",
    "step_ms",
    "postprocess_ms",
    "publish_ms",
)
"""The stages up to the publication of the chunk, which come with it (see QueryTiming.msg)."""

STAGES = (*QUERY_STAGES, "delivery_ms", "command_ms")
"""All stages, in order: each begins where the one before ends (see LatencyBudget.msg)."""

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class LatencyBudget:
    """The stages of one chunk, and the total that was measured; milliseconds."""

    stages: Mapping[str, float]
    total_ms: float

    @property
    def unaccounted_ms(self) -> float:
        """What the stages do not account for: a fault of the measurement, or time of two clocks."""
        return self.total_ms - sum(self.stages.values())


def latency_budget(
    query: Mapping[str, float],
    capture_ns: int,
    observation_to_publish_ms: float,
    arrival_ns: int,
    command_ns: int,
) -> LatencyBudget:
    """The budget of a chunk.

    Args:
        query: the stages up to publication, at least `QUERY_STAGES`.
        capture_ns: capture time of the observation.
        observation_to_publish_ms: from then to the publication, as the policy node measured it.
        arrival_ns: when the chunk arrived at the executor.
        command_ns: when the first command made from it was given.
    """
    delivery_ms = (arrival_ns - capture_ns) / _NS_PER_MS - observation_to_publish_ms
    stages = {name: float(query[name]) for name in QUERY_STAGES}
    stages.update(delivery_ms=delivery_ms, command_ms=(command_ns - arrival_ns) / _NS_PER_MS)
    return LatencyBudget(stages, (command_ns - capture_ns) / _NS_PER_MS)
