"""The chunk executor's state as a message, and its diagnostics in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vla_simd_ros.control.control_loop import Activity, ControlLoop, Tick
from vla_simd_ros.control.supply import Supply
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.msg import ExecutorState
from vla_simd_ros.nodes.diagnostics import Level, Status
from vla_simd_ros.nodes.executor_settings import ExecutorSettings

STATES = {
    Activity.WAITING: ExecutorState.WAITING,
    Activity.EXECUTING: ExecutorState.EXECUTING,
    Activity.STARVED: ExecutorState.STARVED,
    Activity.HOLDING: ExecutorState.HOLDING,
    Activity.STOPPED: ExecutorState.STOPPED,
    Activity.EMERGENCY: ExecutorState.EMERGENCY_STOPPED,
}

UINT32_MAX = 2**32 - 1


@dataclass
class Executed:
    """The row last executed: index, chunk, and age at the command in milliseconds."""

    row: int = -1
    sequence: int = 0
    age_ms: float = math.nan


@dataclass
class Faults:
    """Messages that could not be used, for the diagnostics."""

    joint_states: int = 0
    last_joint_state: str = ""
    last_chunk: str = ""


def state_message(
    loop: ControlLoop, settings: ExecutorSettings, tick: Tick | None, executed: Executed, active: bool
) -> ExecutorState:
    """The state, without its header."""
    supply = loop.supply.report(loop.timeline.mode)
    message = ExecutorState(
        mode=loop.timeline.mode.value,
        control_period=settings.control_period,
        aggregation=settings.blending,
        state=STATES[tick.activity] if tick is not None and active else ExecutorState.INACTIVE,
        reason=tick.reason if tick is not None and active else "not active",
        dry_run=settings.dry_run,
        hold_requested=loop.hold_requested,
        emergency_stop=loop.emergency,
        epoch=loop.timeline.epoch or 0,
        sequence=executed.sequence,
        buffered_steps=min(loop.timeline.buffered_steps(), UINT32_MAX),
        executed_row=executed.row,
        executed_row_age_ms=executed.age_ms,
        executed_steps=loop.timeline.executed_steps,
        stale_rows_dropped=loop.timeline.stale_rows,
        starved_steps=loop.timeline.starved_steps,
        position_limited=loop.limited["position"],
        velocity_limited=loop.limited["velocity"],
        acceleration_limited=loop.limited["acceleration"],
        chunks_received=loop.chunks_received,
        chunks_rejected=loop.rejections.total(),
        rejection_reasons=[reason.value for reason in loop.rejections],
        rejection_counts=list(loop.rejections.values()),
        arrived_sequence=loop.arrival.sequence,
        arrived_delay_ms=loop.arrival.delay_ns * 1e-6,
        splice_step=loop.splice_step,
        splice_step_max=loop.splice_step_max,
    )
    _add_supply(message, supply)
    return message


def _add_supply(message: ExecutorState, supply: Supply) -> None:
    message.delay_steps_median = supply.delay_median
    message.delay_steps_p95 = supply.delay_p95
    message.delay_steps_p99 = supply.delay_p99
    message.query_interval_steps = supply.interval_median
    message.c1_margin_steps = supply.c1
    message.c2_margin_steps = supply.c2
    message.c1_margin_p99_steps = supply.c1_p99
    message.c2_margin_p99_steps = supply.c2_p99
    message.action_supply_rate = supply.rate
    message.starvation_probability = supply.starvation


def execution_status(loop: ControlLoop, tick: Tick | None, active: bool, new_rejections: int) -> Status:
    """What the executor does: starved, holding and stopped are errors."""
    status = Status("execution")
    if not active or tick is None:
        status.add(Level.WARN, "not active")
    elif tick.activity is Activity.WAITING:
        status.add(Level.WARN, tick.reason)
    elif tick.activity is not Activity.EXECUTING:
        status.add(Level.ERROR, tick.reason)
    if new_rejections:
        counts = ", ".join(f"{reason.value} {count}" for reason, count in loop.rejections.items())
        status.add(Level.ERROR, f"{new_rejections} chunks rejected since the last report (in all: {counts})")
    status.values.update(
        {
            "chunks received": loop.chunks_received,
            "chunks rejected": loop.rejections.total(),
            "steps executed": loop.timeline.executed_steps,
            "steps starved": loop.timeline.starved_steps,
            "stale rows dropped": loop.timeline.stale_rows,
            "control steps": loop.grid.steps,
            "control steps late by more than 5 ms": loop.grid.late,
        }
    )
    return status


def supply_status(loop: ControlLoop) -> Status:
    """Whether the budget of the present mode holds at the median and at the 99th percentile."""
    status = Status("action supply")
    supply = loop.supply.report(loop.timeline.mode)
    lagged = loop.timeline.mode is Mode.LAGGED
    name = "C1 (d <= H)" if lagged else "C2 (2 d <= H)"
    median, p99 = (supply.c1, supply.c1_p99) if lagged else (supply.c2, supply.c2_p99)
    if median < 0:
        status.add(Level.WARN, f"{name} fails by {-median:.0f} control steps at the median delay")
    elif p99 < 0:
        status.add(
            Level.WARN, f"{name} fails by {-p99:.0f} control steps at the 99th percentile of the delay"
        )
    status.values.update(
        {
            "delay d, median": supply.delay_median,
            "delay d, p99": supply.delay_p99,
            "query interval s": supply.interval_median,
            "margin at the median": median,
            "margin at p99": p99,
            "supply rate, actions/s": supply.rate,
            "starvation probability per chunk": supply.starvation,
        }
    )
    return status


def joint_status(faults: Faults, new_faults: int) -> Status:
    """Joint states that could not be used."""
    status = Status("joint states")
    if new_faults:
        status.add(
            Level.WARN, f"{new_faults} refused since the last report, the last one: {faults.last_joint_state}"
        )
    status.values["refused"] = faults.joint_states
    return status
