"""A policy in the seat: queries in simulated time, and its chunks through the chunk executor's own loop.

An observation is captured at every control step. The policy is queried on the newest one as soon as it is
free, or when the rows have run out; while the chunk is on its way, simulated time passes. Timeline, limits
and the choice of the moment are the code that the nodes run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from vla_simd_ros.control.chunk import NANOSECONDS, ChunkRejected, RawChunk, RejectReason
from vla_simd_ros.control.control_loop import ActionKind, Activity, ControlLoop
from vla_simd_ros.control.observation_history import padded
from vla_simd_ros.control.query_pacer import SupplyReport
from vla_simd_ros.decoding.base import Decoded, DecodingError
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.pilot import Counts, Decoding, PilotFailed
from vla_simd_ros.evaluation.world import Episode, Vector, World
from vla_simd_ros.executors.base import InputError
from vla_simd_ros.inference import Query
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.base import PolicySpec, Solver

_START_NS = NANOSECONDS  # a stamp of zero is none
_EPOCH = 1


class Answering(Protocol):
    """What is used of a :class:`vla_simd_ros.inference.Policy`."""

    spec: PolicySpec

    @property
    def solver(self) -> Solver | None: ...

    def set_instruction(self, text: str) -> float: ...

    def noise(self, seed: int) -> Any: ...

    @property
    def decoder(self) -> DecoderOptions | None: ...

    @property
    def set_decoder(self) -> Callable[..., None]: ...

    def query(self, observation: Observation, *, noise: Any = None) -> Query: ...


class PolicyPilot:
    """Asks a policy and executes what it answers.

    The noise of a policy that iterates follows from the episode's seed and the number of the query.

    Args:
        policy: the policy.
        execution: how its chunks are executed.
        decoder: what decodes them; None: what the policy was loaded with, or nothing.

    Raises:
        EvaluationError: the chunks are shorter than the horizon of the execution.
    """

    def __init__(
        self, policy: Answering, execution: Execution, decoder: DecoderOptions | None = None
    ) -> None:
        self._policy = policy
        self._decoder = decoder
        self._execution = execution
        self._window = execution.window(policy.spec)

    def begin(self, world: World, episode: Episode) -> None:
        """Start with an empty timeline, and set the instruction."""
        self._world_actions = world.actions
        self._period_ns = world.period_ns
        self._loop = ControlLoop(self._execution.loop(world.actions, world.period_ns))
        self._loop.start_epoch(_EPOCH)
        self._pacer = self._execution.pacer()
        self._now_ns = _START_NS
        self._free_ns = _START_NS
        self._flying: deque[tuple[int, RawChunk]] = deque()
        self._past: deque[Observation] = deque(maxlen=self._policy.spec.observation_steps - 1)
        self._query_ms: list[float] = []
        self._decoded: list[Decoded] = []
        self._noise = np.random.default_rng(episode.seed)
        self._decode()
        # The pacer paces once it knows of an executor.
        self._report()
        self._instruct(episode.instruction)

    def _instruct(self, text: str) -> None:
        if not self._policy.spec.uses_instruction:
            return
        try:
            self._policy.set_instruction(text)
        except InputError as error:
            raise PilotFailed(f"the policy refused the instruction: {error}") from error

    def _decode(self) -> None:
        """Have the policy decode as it is to here: other pilots may share it."""
        if self._decoder is not None and self._policy.decoder != self._decoder:
            self._policy.set_decoder(**asdict(self._decoder))

    def command(self, world: World) -> Vector | None:
        """Take the chunks that have arrived, query if it is time to, and execute the row that is due."""
        self._loop.joint_state(world.positions, self._now_ns)
        self._deliver()
        self._pacer.observed(self._now_ns)
        self._observe_and_query(world)
        self._deliver()
        tick = self._loop.tick(self._now_ns)
        assert tick is not None  # every call is a control step of its own
        self._report()
        self._now_ns += self._period_ns
        if self._world_actions.kind is ActionKind.POSITION or tick.activity is Activity.EXECUTING:
            return tick.command
        return None  # an action that is no position must not be repeated to hold the robot

    def counts(self) -> Counts:
        """Of the episode so far."""
        timeline = self._loop.timeline
        return Counts(
            queries=len(self._query_ms),
            executed_rows=timeline.executed_steps,
            starved_steps=timeline.starved_steps,
            stale_rows=timeline.stale_rows,
            query_ms=float(np.median(self._query_ms)) if self._query_ms else float("nan"),
            decoding=_decoding(self._decoded),
        )

    def _observe_and_query(self, world: World) -> None:
        # One that the policy gets to only after the next one has been captured is never queried.
        due = self._free_ns < self._now_ns + self._period_ns and self._pacer.due(self._now_ns)
        if not due and not self._past.maxlen:
            return
        seen = world.observe()
        if due:
            self._query(seen)
        self._past.append(seen)

    def _query(self, seen: Observation) -> None:
        given = {}
        if self._policy.solver is not None:
            given["noise"] = self._policy.noise(int(self._noise.integers(1 << 31)))
        try:
            answer = self._policy.query(self._with_past(seen), **given)
        except InputError as error:
            raise PilotFailed(f"the policy refused the observation: {error}") from error
        except DecodingError as error:
            raise PilotFailed(f"the policy's tokens are no actions: {error}") from error
        if answer.decoded is not None:
            self._decoded.append(answer.decoded)
        query_ms = answer.timing.total_ms
        self._query_ms.append(query_ms)
        start_ns = max(self._now_ns, self._free_ns)
        arrival_ns = self._free_ns = start_ns + self._execution.delay.nanoseconds(query_ms)
        chunk = RawChunk(
            stamp_ns=self._now_ns,
            sequence=len(self._query_ms),
            epoch=_EPOCH,
            action_names=self._world_actions.names,
            step_period=self._period_ns / NANOSECONDS,
            horizon=len(answer.actions),
            window=min(self._window, len(answer.actions)),
            actions=answer.actions,
            query_ms=query_ms,
        )
        self._flying.append((arrival_ns, chunk))
        self._pacer.published(chunk.sequence, self._now_ns, arrival_ns, self._window * self._period_ns)

    def _with_past(self, seen: Observation) -> Observation:
        """The observation, with those of the steps before for a policy that looks back."""
        back = self._past.maxlen
        if not back:
            return seen
        missing: list[Observation | None] = [None] * (back - len(self._past))
        steps, valid = padded([*missing, *self._past], seen)
        states = [step.state for step in steps if step.state is not None]
        return Observation(
            images={name: np.stack([step.images[name] for step in steps]) for name in seen.images},
            state=np.stack(states) if states else None,
            valid=np.array(valid, np.bool_),
        )

    def _deliver(self) -> None:
        while self._flying and self._flying[0][0] <= self._now_ns:
            arrival_ns, chunk = self._flying.popleft()
            try:
                self._loop.chunk(chunk, arrival_ns)
            except ChunkRejected as rejected:
                # Too late for all of its rows is an outcome; anything else, a fault of the policy.
                if rejected.reason is not RejectReason.EXPIRED:
                    raise PilotFailed(f"the executor rejected a chunk: {rejected}") from rejected

    def _report(self) -> None:
        """Tell the pacer what the executor would."""
        arrival = self._loop.arrival
        self._pacer.executor(
            SupplyReport(
                time_ns=self._now_ns,
                mode=self._execution.timeline_mode,
                period_ns=self._period_ns,
                buffered_steps=self._loop.timeline.buffered_steps(),
                sequence=arrival.sequence,
                delay_ns=arrival.delay_ns,
            )
        )


def _decoding(queries: Sequence[Decoded]) -> Decoding | None:
    if not queries:
        return None
    rates = [decoded.mean_tokens_per_second for decoded in queries]
    return Decoding(
        passes=sum(len(decoded.passes) for decoded in queries),
        tokens=sum(len(decoded.tokens) for decoded in queries),
        seconds=sum(decoded.seconds for decoded in queries),
        slowest=min(rates),
        fastest=max(rates),
    )
