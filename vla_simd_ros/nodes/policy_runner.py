"""What the query thread does with the policy: episodes, queries, and chunks with their timing."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.committed import CommittedPrefix
from vla_simd_ros.control.query_pacer import QueryPacer
from vla_simd_ros.inference import Query, Timing
from vla_simd_ros.nodes.episodes import Episode
from vla_simd_ros.nodes.injected_delay import InjectedDelay
from vla_simd_ros.nodes.observations import Observations, ObservationUnavailable, Observed
from vla_simd_ros.nodes.policy_settings import PolicySettings
from vla_simd_ros.nodes.query_decoding import HowDecoded, NotConverged, QueryDecoding
from vla_simd_ros.nodes.query_sampling import QuerySampling, Sampled
from vla_simd_ros.nodes.query_worker import FrameSet

# Two clocks read within this time are read at once; it is tried so many times.
_AT_ONCE_S = 1e-4
_READINGS = 5
_KEPT_CHUNKS = 8


class PolicyOutputError(Exception):
    """The policy's output cannot be executed."""


@dataclass(frozen=True)
class Times:
    """Milliseconds of a query; the meaning of each is that of the field in QueryTiming."""

    observation_age: float
    transport: float
    sync: float
    wait: float
    preprocess: float
    query: float
    handover: float
    step: float
    postprocess: float
    total: float


@dataclass(frozen=True, eq=False)
class Prepared:
    """An observation made of frames, what else its query is given, and when that began and ended."""

    frames: FrameSet
    observed: Observed
    sampled: Sampled
    given: Mapping[str, Any]
    frozen: int
    start_ns: int
    start: float
    converted: float


@dataclass(frozen=True)
class Prediction:
    """A chunk in the robot's units, float64 ``[chunk, joints]``, with its capture time.

    ``ready_ns`` is the time it was there, ``frame_stamps_ns`` and ``joint_stamp_ns`` tell what its
    observation was made of, ``num_steps`` and ``noise_seed`` how a policy that iterates computed it,
    ``decoding`` how one of action tokens did. The first ``frozen`` rows were given to the policy.
    """

    stamp_ns: int
    rows: np.ndarray
    times: Times
    ready_ns: int
    frame_stamps_ns: tuple[int, ...]
    joint_stamp_ns: int
    frozen: int = 0
    num_steps: int = 0
    noise_seed: int = 0
    decoding: HowDecoded | None = None

    @property
    def converged(self) -> bool:
        """Whether neither passes nor time ran out."""
        return self.decoding is None or self.decoding.decoded.converged


class PolicyRunner:
    """Runs a loaded policy for the query worker.

    Args:
        policy: a :class:`vla_simd_ros.inference.Policy`; only the query thread uses it from here on.
        settings: the node's settings for it.
        observations: makes observations of frames.
        sampling: steps and noise of queries.
        decoding: of their action tokens.
        pacer: says which observations are queried.
        clock: the node's clock, nanoseconds.
        publish: publishes a prediction for an episode; the number of the chunk.
        fail: called with a text when the policy failed.
        warn: called with a text when it could not use something as it was given.
        delay: what each chunk waits for besides, to try slow policies; None: nothing.

    Attributes:
        problem: why the last episode or query failed; empty when it did not.
        unavailable: why the last frames gave no observation or no chunk; empty when they did.
        guessed: whether the last chunk had not converged, and was published all the same.
        committed: the rows that the executor has committed to, their columns those of the policy's action.
    """

    def __init__(
        self,
        policy: Any,
        settings: PolicySettings,
        observations: Observations,
        sampling: QuerySampling,
        decoding: QueryDecoding,
        pacer: QueryPacer,
        clock: Callable[[], int],
        publish: Callable[[Prediction, Episode, float], int],
        fail: Callable[[str], None],
        warn: Callable[[str], None],
        delay: InjectedDelay | None = None,
    ) -> None:
        self._delay = delay
        self._policy = policy
        self._settings = settings
        self._observations = observations
        self._sampling = sampling
        self._decoding = decoding
        self._pacer = pacer
        self._clock = clock
        self._publish = publish
        self._fail = fail
        self._warn = warn
        self._epoch = 0
        # The chunks published last, by number: what real-time chunking goes on from.
        self._published: OrderedDict[int, np.ndarray] = OrderedDict()
        self.committed: CommittedPrefix | None = None
        self.problem = ""
        self.unavailable = ""
        self.guessed = False
        self.truncated = bool(policy.instruction_truncated)
        self.queries = 0
        self.skipped = 0

    def begin(self, episode: Episode) -> float:
        """Run the episode program when the instruction is another one; milliseconds spent."""
        return self.instruct(self._policy, episode)

    def instruct(self, policy: Any, episode: Episode) -> float:
        """The same for any policy of this kind."""
        self._note()
        self._epoch = episode.epoch
        if episode.instruction is None:
            return 0.0
        spent = float(policy.set_instruction(episode.instruction))
        if not spent:  # it was set already
            return 0.0
        self.truncated = bool(policy.instruction_truncated)
        if self.truncated:
            limit = policy.spec.max_instruction_tokens
            self._warn(f"the instruction is longer than {limit} tokens: the rest is left out")
        return spent

    def due(self, frames: FrameSet) -> bool:
        """Whether to query these frames."""
        return self._pacer.due(frames.stamp_ns)

    def query(self, frames: FrameSet) -> Prediction | None:
        """Run the policy on the frames; None, with the reason noted, when they give no observation."""
        prepared = self.prepare(frames)
        if prepared is None:
            return None
        self.ready_decoder(self._policy)
        result = self._policy.query(prepared.observed.observation, **prepared.given)
        try:
            prediction = self.finish(prepared, result)
        except NotConverged as error:
            self.withhold(error)
            return None
        self.delay()
        return prediction

    def prepare(self, frames: FrameSet) -> Prepared | None:
        """What a query on the frames is given; None, with the reason noted, when they give no observation."""
        start_ns, start = _moment(self._clock)
        deadline = self._decoding.given()
        try:
            observed = self._observations.observe(frames, start_ns)
        except ObservationUnavailable as error:
            self.skipped += 1
            self._note(unavailable=str(error))
            return None
        sampled = self._sampling.draw()
        given = {**sampled.arguments, **deadline}
        prefix, frozen = self._prefix(frames.stamp_ns)
        if frozen:
            given["prefix"] = self._sampling.prefix(self._settings.action_units.to_policy(prefix), frozen)
        return Prepared(frames, observed, sampled, given, frozen, start_ns, start, time.perf_counter())

    def ready_decoder(self, policy: Any) -> None:
        """Let a policy of this kind decode as it is to now; in the thread that decodes."""
        self._decoding.apply(policy)

    def withhold(self, error: NotConverged) -> None:
        """Report that a query's result is not used."""
        self._note(unavailable=str(error))

    @property
    def unconverged(self) -> int:
        """Queries that had not converged, published or not."""
        return self._decoding.unconverged

    def finish(self, prepared: Prepared, result: Query) -> Prediction:
        """The prediction that a query's result is. Raises PolicyOutputError where it cannot be executed, and
        NotConverged where it is not to be."""
        decoding = self._decoding.judge(result.decoded)
        rows = self._settings.action_units.to_robot(np.asarray(result.actions, dtype=np.float64))
        self._check(rows, whole=decoding is None or decoding.decoded.converged)
        ready_ns, ready = _moment(self._clock)
        self._note()
        prediction = Prediction(
            prepared.frames.stamp_ns,
            rows,
            _times(prepared, result.timing, (ready - prepared.start) * 1e3),
            ready_ns,
            prepared.observed.frame_stamps_ns,
            prepared.observed.joint_stamp_ns,
            frozen=prepared.frozen,
            num_steps=prepared.sampled.num_steps,
            noise_seed=prepared.sampled.noise_seed,
            decoding=decoding,
        )
        self.guessed = not prediction.converged
        return prediction

    def delay(self) -> None:
        """Wait as long as was asked for, to try slow policies. Raises Cancelled."""
        if self._delay is not None:
            self._delay.wait()

    def _prefix(self, stamp_ns: int) -> tuple[np.ndarray, int]:
        """The first rows of the chunk to be, in robot units, as the chunk in execution has them, and how many
        of them are committed already; none where none are."""
        committed = self.committed
        if committed is None:
            return np.zeros((0, len(self._settings.action_names))), 0
        step_ns = round(self._settings.step_period * NANOSECONDS)
        rows = committed.for_query(self._epoch, stamp_ns, step_ns, self._settings.window)
        frozen = len(rows)
        chunk = self._published.get(committed.sequence)
        if frozen and chunk is not None:
            rest = committed.remaining(chunk, stamp_ns, step_ns, frozen, len(chunk))
            rows = np.concatenate([rows, rest])
        return rows, frozen

    def deliver(self, result: Prediction, episode: Episode, episode_ms: float) -> None:
        """Publish a prediction of the present episode."""
        self.queries += 1
        self._published[self._publish(result, episode, episode_ms)] = result.rows
        while len(self._published) > _KEPT_CHUNKS:
            self._published.popitem(last=False)

    def failed(self, error: Exception) -> None:
        """Keep and report what an episode or a query raised."""
        self._note(problem=f"the policy failed: {error or type(error).__name__}")

    def cancel(self) -> None:
        """From any thread: end what runs, and what is run until :meth:`resume`."""
        self._policy.cancel()
        self.cancel_delay()

    def cancel_delay(self) -> None:
        """From any thread: end the delay that runs, and those until :meth:`resume_delay`."""
        if self._delay is not None:
            self._delay.cancel()

    def resume(self) -> None:
        """Let the policy run again."""
        self._policy.resume()
        self.resume_delay()

    def resume_delay(self) -> None:
        """Let delays last again."""
        if self._delay is not None:
            self._delay.resume()

    def close(self) -> None:
        """Free the policy."""
        self._policy.close()

    def _check(self, rows: np.ndarray, whole: bool) -> None:
        """``whole``: it has as many rows as the policy says; a chunk that ran out of time may have fewer."""
        expected = (self._policy.spec.chunk_size, len(self._settings.action_names))
        fits = rows.ndim == 2 and 0 < len(rows) <= expected[0] and rows.shape[1] == expected[1]
        if not fits or (whole and len(rows) < expected[0]):
            raise PolicyOutputError(f"its output has shape {rows.shape}, expected {expected}")
        if not np.isfinite(rows).all():
            raise PolicyOutputError("its output is not finite; nothing is published")

    def _note(self, problem: str = "", unavailable: str = "") -> None:
        self.problem, self.unavailable = problem, unavailable
        if problem:
            self._fail(problem)
        elif unavailable:
            self._warn(unavailable)


def _moment(clock: Callable[[], int]) -> tuple[int, float]:
    """The node's clock and the steady one at one moment: read again where the thread was interrupted between
    the two, which would count the interruption twice or not at all."""
    for _ in range(_READINGS):
        before, now_ns, after = time.perf_counter(), clock(), time.perf_counter()
        if after - before < _AT_ONCE_S:
            break
    return now_ns, after


def _times(prepared: Prepared, spent: Timing, total: float) -> Times:
    """Stages that follow each other without a gap; ``total`` is in milliseconds."""
    frames, start_ns = prepared.frames, prepared.start_ns
    preprocess = (prepared.converted - prepared.start) * 1e3 + spent.preprocess_ms
    return Times(
        observation_age=(start_ns - frames.stamp_ns) * 1e-6,
        transport=(frames.received_ns - frames.stamp_ns) * 1e-6,
        sync=(frames.complete_ns - frames.received_ns) * 1e-6,
        wait=(start_ns - frames.complete_ns) * 1e-6,
        preprocess=preprocess,
        query=spent.query_ms,
        handover=spent.handover_ms,
        step=spent.step_ms,
        postprocess=total - preprocess - spent.query_ms - spent.handover_ms - spent.step_ms,
        total=total,
    )
