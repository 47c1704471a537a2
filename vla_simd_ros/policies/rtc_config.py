"""How a checkpoint has its chunks continued: the field ``rtc_config`` of LeRobot's config.json."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.checkpoint import CONFIG, Checkpoint
from vla_simd_ros.checkpoints.json_file import field
from vla_simd_ros.policies.base import Guidance
from vla_simd_ros.policies.config_fields import misfit
from vla_simd_ros.policies.solvers.flow_matching import SCHEDULES, USUAL_GUIDANCE

_FIELD = "rtc_config"


def read_guidance(checkpoint: Checkpoint) -> Guidance:
    """What ``rtc_config`` says, and LeRobot's defaults for what it leaves out; without it these alone.

    Raises CheckpointError.
    """
    if checkpoint.config.get(_FIELD) is None:
        return USUAL_GUIDANCE
    given: dict[str, Any] = checkpoint.option(_FIELD, dict)
    where = f"{checkpoint.folder / CONFIG}: {_FIELD}"

    def value(name: str, kind: type, default: Any) -> Any:
        return default if given.get(name) is None else field(given, name, kind, where)

    usual = USUAL_GUIDANCE
    schedule = value("prefix_attention_schedule", str, usual.schedule)
    if schedule not in SCHEDULES:
        expected = "one of " + ", ".join(SCHEDULES)
        raise misfit(checkpoint, f"prefix_attention_schedule of {_FIELD}", f"'{schedule}'", expected)
    horizon = value("execution_horizon", int, usual.horizon)
    if horizon < 1:
        raise misfit(checkpoint, f"execution_horizon of {_FIELD}", horizon, "1 or more")
    most = value("max_guidance_weight", float, usual.max_weight)
    if most <= 0:
        raise misfit(checkpoint, f"max_guidance_weight of {_FIELD}", most, "a number above 0")
    return Guidance(schedule, horizon, float(most), value("enabled", bool, usual.enabled))
