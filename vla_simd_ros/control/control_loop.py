"""What the chunk executor does at each control step: chunks and joint states in, one bounded command out.

Free of ROS, with the time passed in, so that the same inputs at the same times give the same commands live,
in a test and from a recording.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vla_simd_ros.control.blending import Blending
from vla_simd_ros.control.chunk import Chunk, ChunkRejected, RawChunk, RejectReason, check_content
from vla_simd_ros.control.committed import CommittedPrefix
from vla_simd_ros.control.grid import ControlGrid
from vla_simd_ros.control.limits import Bounds, JointLimits, Limiter, Vector
from vla_simd_ros.control.plan import Ahead
from vla_simd_ros.control.supply import SupplyMonitor
from vla_simd_ros.control.timeline import ChunkTimeline, Mode, Step, StepKind


class ActionKind(str, enum.Enum):
    """What a row of a chunk is."""

    POSITION = "position"
    """Joint positions: a target to move to from where the joints are."""
    VELOCITY = "velocity"
    """Velocities: 0 is to stand still."""
    WAYPOINT = "waypoint"
    """A point on a path that somebody else follows: only the position limits apply."""


class Starvation(str, enum.Enum):
    """What to do while the rows have run out."""

    HOLD = "hold"
    DECAY = "decay"


class Activity(enum.Enum):
    """What the loop is doing."""

    WAITING = "waiting"
    EXECUTING = "executing"
    STARVED = "starved"
    HOLDING = "holding"
    STOPPED = "stopped"
    EMERGENCY = "emergency stop"


@dataclass(frozen=True)
class Arrival:
    """The chunk accepted last, and its delay from capture to arrival."""

    sequence: int = 0
    delay_ns: int = 0


@dataclass(frozen=True)
class LoopConfig:
    """Settings of a control loop; times in nanoseconds.

    ``decay_ns`` is the time in which a decaying velocity falls to 1/e. ``start_tolerance`` is how far outside
    its position limits a joint may be when motion starts.

    Raises:
        ValueError: settings that contradict each other.
    """

    joints: tuple[str, ...]
    kind: ActionKind
    limits: JointLimits
    period_ns: int
    mode: Mode
    blending: Blending
    starvation: Starvation
    decay_ns: int
    starvation_timeout_ns: int
    joint_timeout_ns: int
    policy_timeout_ns: int
    future_tolerance_ns: int
    max_age_ns: int
    start_tolerance: float

    def __post_init__(self) -> None:
        if len(self.limits.lower) != len(self.joints):
            raise ValueError(
                f"limits for {len(self.limits.lower)} joints, "
                f"expected {len(self.joints)}: {list(self.joints)}"
            )
        if self.starvation is Starvation.DECAY and self.kind is not ActionKind.VELOCITY:
            raise ValueError(
                f"starvation behaviour 'decay' is for velocities, the actions are of kind {self.kind.value}"
            )
        if self.kind is ActionKind.VELOCITY:
            zeros = np.zeros(len(self.joints))
            if (fault := self.limits.outside(zeros, 0.0)) is not None:
                raise ValueError(f"velocities must be able to be zero: {fault}")


@dataclass(frozen=True)
class Tick:
    """The outcome of one control step. ``command`` is None when nothing is to be sent."""

    activity: Activity
    reason: str
    command: Vector | None
    step: Step | None = None

    @property
    def row(self) -> Step | None:
        """The row in force, None without one."""
        held = self.step is not None and self.step.kind in (StepKind.ROW, StepKind.KEEP)
        return self.step if held else None


class ControlLoop:
    """Joins timeline, limits and watchdogs.

    Attributes:
        timeline: the chunks in execution, with their counters.
        supply: measured delays.
        grid: the control steps, with how many were late.
        rejections: chunks rejected, by reason.
        chunks_received: chunks that arrived.
        limited: commands changed by a limit, by limit ("position", "velocity", "acceleration").
        splice_step, splice_step_max: change of the target at the last splice, and the largest so far.
        hold_requested: whether the hold service keeps the arm held.
        emergency: whether an emergency stop is in force.
        arrival: the chunk accepted last.
        measured_ns: stamp of the newest joint state; 0: none.
        chunk_publishers: how many publishers of chunks there are.
    """

    def __init__(self, config: LoopConfig) -> None:
        self._config = config
        self.timeline = ChunkTimeline(
            config.mode, config.period_ns, config.blending, config.future_tolerance_ns, config.max_age_ns
        )
        self.supply = SupplyMonitor(config.period_ns)
        self._limiter = self._make_limiter()
        self.grid = ControlGrid(config.period_ns)
        self.rejections: Counter[RejectReason] = Counter()
        self.chunks_received = 0
        self.limited: Counter[str] = Counter()
        self.splice_step = math.nan
        self.splice_step_max = math.nan
        self.hold_requested = False
        self.emergency = False
        self.arrival = Arrival()
        self._unready = ""
        self.chunk_publishers = 1
        self._measured: Vector | None = None
        self.measured_ns = 0
        self._chunk_ns: int | None = None
        self._starved_since_ns: int | None = None
        self._stopped = False
        self._last_ns: int | None = None

    def _make_limiter(self) -> Limiter | Bounds:
        if self._config.kind is ActionKind.WAYPOINT:
            return Bounds(self._config.limits)
        return Limiter(self._config.limits, self._config.period_ns * 1e-9)

    def limit(self, limits: JointLimits) -> None:
        """Put other limits in force: before anything has been commanded."""
        self._config = replace(self._config, limits=limits)
        self._limiter = self._make_limiter()

    def unready(self, reason: str) -> None:
        """Command nothing for this reason, or, with an empty one, no longer so."""
        self._unready = reason

    def joint_state(self, positions: Vector, stamp_ns: int) -> None:
        """Take positions measured at ``stamp_ns``, in the order of the joints."""
        self._measured, self.measured_ns = positions, stamp_ns

    def start_epoch(self, epoch: int) -> None:
        """Drop the rows of the epoch before and hold until the first chunk of this one."""
        if epoch == self.timeline.epoch:
            return
        self.timeline.start_epoch(epoch)
        self.supply.interrupted()
        self._chunk_ns = None
        self._starved_since_ns = None

    def chunk(self, raw: RawChunk, now_ns: int) -> None:
        """Take a chunk.

        Raises:
            ChunkRejected: it will not be executed; it has been counted.
        """
        self.chunks_received += 1
        try:
            if self.chunk_publishers > 1:
                raise ChunkRejected(RejectReason.SECOND_PUBLISHER, self._publisher_fault())
            chunk = check_content(raw, self._config.joints)
            self.timeline.add(chunk, now_ns)
        except ChunkRejected as rejected:
            self.rejections[rejected.reason] += 1
            if rejected.reason is RejectReason.EXPIRED:
                # Nothing else shows a supply so slow that every chunk comes too late.
                self._measure(chunk, now_ns)
            raise
        self._chunk_ns = now_ns
        self.arrival = Arrival(chunk.sequence, now_ns - chunk.stamp_ns)
        self._measure(chunk, now_ns)

    def _measure(self, chunk: Chunk, now_ns: int) -> None:
        self.supply.arrived(chunk.stamp_ns, now_ns, chunk.window, chunk.step_ns, chunk.query_ms)

    def hold(self, requested: bool) -> None:
        """Stop at once and stay there, or release; after a release the next chunk restarts the motion."""
        self.hold_requested = requested
        if requested:
            self._drop_rows()

    def emergency_stop(self, requested: bool) -> None:
        """Command nothing from now on, or release: the next chunk restarts from the measured positions."""
        self.emergency = requested
        if requested:
            self._drop_rows()
            self._limiter.forget()
            self._stopped = False

    def publishers(self, count: int) -> None:
        """Say how many publishers of chunks there are; more than one holds the arm."""
        self.chunk_publishers = count

    def committed(self, now_ns: int) -> CommittedPrefix | None:
        """The rows that will have been executed before the chunk of a query that starts now can arrive.

        By the 99th percentile of the measured delays. None where there is nothing to continue: in lagged
        execution, while no row is executed, and before the first delay has been measured.
        """
        delay_ns = self.supply.delay_ns(_COMMITTED_QUANTILE)
        if delay_ns is None or self.timeline.mode is Mode.LAGGED:
            return None
        return self.timeline.committed(now_ns + delay_ns)

    def ahead(self) -> Ahead | None:
        """The row in force and those planned after it, within the position limits; None without rows."""
        ahead = self.timeline.ahead()
        if ahead is None or not len(ahead.rows):
            return None
        return replace(ahead, rows=Bounds(self._config.limits).bounded(ahead.rows))

    def clock_jumped(self) -> None:
        """Forget everything that has a time; the arm holds until the next chunk."""
        self.timeline.clock_jumped()
        self.supply.interrupted()
        self.grid.reset()
        self._measured, self.measured_ns = None, 0
        self._chunk_ns = None
        self._starved_since_ns = None
        self._last_ns = None

    def pause(self) -> None:
        """Stop commanding; :meth:`tick` will start again from the measured positions."""
        self._drop_rows()
        self._limiter.forget()
        self._chunk_ns = None
        self._stopped = False

    def braking(self) -> Iterator[Vector]:
        """Commands, one per control step, from the present motion to rest; none if nothing moves."""
        last = self._limiter.command
        while last is not None and not self._resting(last):
            last = self._stop_step()
            yield last

    def tick(self, now_ns: int) -> Tick | None:
        """Run the control step at ``now_ns``; None when this step was done already."""
        if self._last_ns is not None and now_ns < self._last_ns:
            self.clock_jumped()
        self._last_ns = now_ns
        time_ns = self.grid.next(now_ns)
        if time_ns is None:
            return None
        if self.emergency:
            self._drop_rows()
            return Tick(Activity.EMERGENCY, "emergency stop: no commands until it is released", None)
        obstacle = self._obstacle(now_ns)
        if obstacle is not None:
            self._drop_rows()
            return self._stand(Activity.HOLDING, obstacle)
        if self._measured is None and self._config.kind is ActionKind.POSITION:
            return self._stand(Activity.WAITING, "no joint state has been received")
        step = self.timeline.advance(time_ns)
        if step.kind is StepKind.WAITING:
            return self._stand(Activity.WAITING, self._what_is_missing(), step)
        if step.kind is StepKind.STARVED:
            return self._starve(now_ns, step)
        return self._follow(step)

    def _obstacle(self, now_ns: int) -> str | None:
        """Why the arm must be held now, or None."""
        config = self._config
        if self.hold_requested:
            return "held by the hold service"
        if self.chunk_publishers > 1:
            return self._publisher_fault()
        if self._unready:
            return self._unready
        if config.kind is ActionKind.POSITION and self._measured is not None:
            silent_ns = now_ns - self.measured_ns
            if silent_ns > config.joint_timeout_ns:
                return _silence("joint state", silent_ns, config.joint_timeout_ns)
            if self._limiter.command is None:
                outside = config.limits.outside(self._measured, config.start_tolerance)
                if outside is not None:
                    return f"{outside}: bring it inside to start"
        if self._chunk_ns is not None and now_ns - self._chunk_ns > config.policy_timeout_ns:
            return _silence("chunk", now_ns - self._chunk_ns, config.policy_timeout_ns)
        return None

    def _publisher_fault(self) -> str:
        return f"{self.chunk_publishers} publishers of action chunks, expected one"

    def _what_is_missing(self) -> str:
        if self.timeline.epoch is None:
            return "no epoch has been announced"
        return f"no chunk of epoch {self.timeline.epoch} to execute yet"

    def _follow(self, step: Step) -> Tick:
        self._starved_since_ns = None
        self._stopped = False
        if step.splice is not None:
            self.splice_step = step.splice
            self.splice_step_max = max(step.splice, np.nan_to_num(self.splice_step_max))
        self._start_limiter()
        assert step.target is not None  # a ROW or KEEP step has one
        return Tick(Activity.EXECUTING, "", self._limit(step.target), step)

    def _starve(self, now_ns: int, step: Step) -> Tick:
        if self._starved_since_ns is None:
            self._starved_since_ns = now_ns
        starved_ns = now_ns - self._starved_since_ns
        timed_out = starved_ns >= self._config.starvation_timeout_ns
        if timed_out and self._at_rest():
            self._stopped = True
            self._limiter.forget()
            reason = f"starved for {starved_ns * 1e-9:.2f} s: commands have stopped until the next chunk"
            return Tick(Activity.STOPPED, reason, None, step)
        decay = self._config.starvation is Starvation.DECAY and not timed_out
        command = self._decay_step() if decay else self._stop_step()
        return Tick(Activity.STARVED, "the rows have run out before the next chunk arrived", command, step)

    def _stand(self, activity: Activity, reason: str, step: Step | None = None) -> Tick:
        """Come to a stop and stay there."""
        self._starved_since_ns = None
        if self._stopped:
            return Tick(Activity.STOPPED, reason, None, step)
        command = None if self._limiter.command is None else self._stop_step()
        return Tick(activity, reason, command, step)

    def _limit(self, target: Vector) -> Vector:
        limited = self._limiter.step(target)
        for name in ("position", "velocity", "acceleration"):
            self.limited[name] += int(getattr(limited, name))
        return limited.command

    def _stop_step(self) -> Vector:
        """The next command on the way to rest."""
        if self._config.kind is ActionKind.VELOCITY:
            return self._limit(np.zeros(len(self._config.joints)))
        return self._limiter.brake()

    def _decay_step(self) -> Vector:
        last = self._limiter.command
        assert last is not None  # rows have been executed
        return self._limit(last * math.exp(-self._config.period_ns / self._config.decay_ns))

    def _at_rest(self) -> bool:
        last = self._limiter.command
        return last is None or self._resting(last)

    def _resting(self, last: Vector) -> bool:
        if self._config.kind is ActionKind.VELOCITY:
            return bool(np.all(np.abs(last) < _STANDSTILL))
        return self._limiter.at_rest

    def _start_limiter(self) -> None:
        """Before the first command: from the measured positions (or zero velocity), at rest."""
        if self._limiter.command is not None:
            return
        positions = self._config.kind is ActionKind.POSITION
        start = self._measured if positions else np.zeros(len(self._config.joints))
        assert start is not None  # tick() has waited for joint states
        self._limiter.start(start)

    def _drop_rows(self) -> None:
        self.timeline.clear_rows()
        self.supply.interrupted()


# Of the measured delays, when saying which rows a chunk will come too late for.
_COMMITTED_QUANTILE = 0.99

# A velocity below this (rad/s or m/s) counts as standing still: rounding only.
_STANDSTILL = 1e-9


def _silence(what: str, silent_ns: int, limit_ns: int) -> str:
    return f"no {what} for {silent_ns * 1e-9:.2f} s, expected one within {limit_ns * 1e-9:.2f} s"
