"""How a policy's chunks are executed in an evaluation: mode, rows of a chunk, and the delay of a query."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from vla_simd_ros.control.blending import Replace
from vla_simd_ros.control.control_loop import LoopConfig, Starvation
from vla_simd_ros.control.query_pacer import QueryPacer
from vla_simd_ros.control.query_timing import Pacing, QueryPacing, chosen_pacing
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.evaluation.world import Actions, EvaluationError
from vla_simd_ros.policies.base import PolicySpec

SYNCHRONOUS = "synchronous"
MODES = (*(mode.value for mode in Mode), SYNCHRONOUS)
"""The executor's two, in which queries overlap with execution, and the robot that stands while it waits."""

MEASURED = "measured"
_LONGEST_MS = 60_000.0
_NS_PER_MS = 1e6
# Late chunks are what is studied: no watchdog is to end an episode.
_NEVER_NS = 1 << 61


@dataclass(frozen=True)
class Delay:
    """Simulated time from an observation's query to the arrival of its chunk.

    ``milliseconds``, and, where it is ``measured``, the time besides that the query takes on this machine.
    """

    milliseconds: float = 0.0
    measured: bool = False

    def nanoseconds(self, query_ms: float) -> int:
        """The delay of a query that took so long."""
        return round((self.milliseconds + (query_ms if self.measured else 0.0)) * _NS_PER_MS)

    def __str__(self) -> str:
        if not self.measured:
            return f"{self.milliseconds:g} ms"
        return MEASURED + (f" + {self.milliseconds:g} ms" if self.milliseconds else "")


def delay(text: str) -> Delay:
    """A delay from its text: milliseconds, "measured", or "measured+" and milliseconds.

    Raises:
        EvaluationError: it is none of these.
    """
    kind, plus, rest = text.strip().partition("+")
    measured = kind.strip() == MEASURED
    number = rest if measured else text
    if measured and not plus:
        return Delay(measured=True)
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= _LONGEST_MS:
        raise EvaluationError(
            f"delay '{text}': expected milliseconds up to {_LONGEST_MS:g}, '{MEASURED}' or '{MEASURED}+MS'"
        )
    return Delay(value, measured)


@dataclass(frozen=True)
class Execution:
    """Settings of one condition.

    ``mode`` is one of `MODES`; ``horizon`` the rows of each chunk that may be executed, 0 for as many as the
    checkpoint says. ``pacing`` and ``threshold`` say when queries start, what is None as the checkpoint
    says (`paced`); in synchronous execution they start when no control step has a row.

    Raises:
        EvaluationError: an unknown mode, a horizon or threshold below 0, or a pacing where queries wait for
            the end of the rows.
    """

    mode: str = Mode.TIME_ALIGNED.value
    horizon: int = 0
    threshold: int | None = None
    delay: Delay = field(default_factory=Delay)
    pacing: QueryPacing | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise EvaluationError(f"mode '{self.mode}' is unknown, expected one of {', '.join(MODES)}")
        if self.horizon < 0:
            raise EvaluationError(f"horizon is {self.horizon} rows, expected 1 or more, 0: the checkpoint's")
        if self.threshold is not None and (self.threshold < 0 or self.mode == SYNCHRONOUS):
            raise EvaluationError(
                f"query threshold is {self.threshold} steps in {self.mode} execution, expected 0 or more, "
                f"and none in {SYNCHRONOUS} execution"
            )
        if self.pacing is not None and self.mode == SYNCHRONOUS:
            raise EvaluationError(f"query pacing is '{self.pacing.value}', expected none in {SYNCHRONOUS}")

    @property
    def timeline_mode(self) -> Mode:
        """How the chunk executor is to treat late rows."""
        return Mode.LAGGED if self.mode == SYNCHRONOUS else Mode(self.mode)

    @property
    def asked_pacing(self) -> Pacing:
        """When queries start; what has not been said is the default."""
        if self.mode == SYNCHRONOUS:
            return Pacing(QueryPacing.ON_DEMAND, 0)
        return chosen_pacing(self.pacing, self.threshold, None)

    def paced(self, recommended: Pacing | None) -> Execution:
        """The same, with all said of when queries start: what is not asked for is as recommended."""
        if self.mode == SYNCHRONOUS:
            return self
        chosen = chosen_pacing(self.pacing, self.threshold, recommended)
        threshold = chosen.threshold if chosen.kind is QueryPacing.ON_DEMAND else None
        return replace(self, pacing=chosen.kind, threshold=threshold)

    def pacer(self) -> QueryPacer:
        """Says when the policy is to be queried."""
        asked = self.asked_pacing
        return QueryPacer(asked.kind, asked.threshold)

    def window(self, spec: PolicySpec) -> int:
        """Rows of a policy's chunk that may be executed.

        Raises:
            EvaluationError: the chunk has fewer.
        """
        if self.horizon > spec.chunk_size:
            raise EvaluationError(
                f"horizon is {self.horizon} rows, expected at most the policy's chunk, {spec.chunk_size}"
            )
        return self.horizon or spec.n_action_steps

    def loop(self, actions: Actions, period_ns: int) -> LoopConfig:
        """The settings of the chunk executor's control loop."""
        return LoopConfig(
            joints=actions.names,
            kind=actions.kind,
            limits=actions.limits,
            period_ns=period_ns,
            mode=self.timeline_mode,
            blending=Replace(),
            starvation=Starvation.HOLD,
            decay_ns=period_ns,
            starvation_timeout_ns=_NEVER_NS,
            joint_timeout_ns=_NEVER_NS,
            policy_timeout_ns=_NEVER_NS,
            future_tolerance_ns=0,
            max_age_ns=_NEVER_NS,
            start_tolerance=math.inf,
        )
