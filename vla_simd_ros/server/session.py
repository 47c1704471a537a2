"""Whose turn it is: one client at a time, and which of its observations are worth a query."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.observation_history import SampleHistory, step_times
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.observations import state_vector
from vla_simd_ros.server.requests import PolicyRequest, TimedObservation

_KEPT_STEPS = 256
# The past that is kept for policies of several observation steps; one may wait while newer ones come.
_KEPT_PERIODS = 8
_RECENT = 4
_MOST_OBSERVATIONS = 32


class ClientSlot:
    """The one client that is being served.

    Args:
        clock: seconds, never going back.
        idle_s: after this long without a call the client counts as gone.
    """

    def __init__(self, clock: Callable[[], float], idle_s: float) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._peer = ""
        self._last_call = 0.0

    def claim(self, peer: str) -> None:
        """A client introduces itself. Raises :class:`WireError` while another one is being served."""
        with self._lock:
            if self._peer not in ("", peer) and not self._idle():
                raise WireError(f"another client ({self._peer}) is being served, one at a time")
            self._peer = peer
            self._last_call = self._clock()

    def check(self, peer: str) -> None:
        """A call of a client. Raises :class:`WireError` for one that is not being served.

        A client whose connection was lost calls from another port of the same host afterwards.
        """
        with self._lock:
            returned = self._idle() and _host(peer) == _host(self._peer)
            if peer != self._peer and not returned:
                raise WireError("this client has not called Ready, or another one is being served")
            self._peer = peer
            self._last_call = self._clock()

    def touch(self, peer: str) -> None:
        """A long call of the client ends now."""
        with self._lock:
            if peer == self._peer:
                self._last_call = self._clock()

    def _idle(self) -> bool:
        return self._clock() - self._last_call > self._idle_s


class ObservationSlot:
    """The newest observation that waits for a query.

    As in LeRobot's own server, an observation is skipped when its step has been predicted from already, or
    when the joints have moved less than ``least_motion`` (Euclidean norm, in the robot's units) since the
    last one that was used; one that must go never is. Neither is one of a robot that has executed all rows it
    was sent: LeRobot's client forgets to say that it must go where an answer arrives before it has noted that
    it asked, and would wait for ever.
    """

    def __init__(self, least_motion: float) -> None:
        self._least_motion = least_motion
        self._condition = threading.Condition()
        self._waiting: TimedObservation | None = None
        self._used: TimedObservation | None = None
        self._used_steps: deque[int] = deque(maxlen=_KEPT_STEPS)
        self._last_row: int | None = None

    def reset(self) -> None:
        """Forget everything: a new client, or a new policy."""
        with self._condition:
            self._waiting = self._used = None
            self._used_steps.clear()
            self._last_row = None

    def answered(self, observation: TimedObservation, rows: int) -> None:
        """So many rows were computed from an observation, the first one for its step."""
        with self._condition:
            self._last_row = observation.timestep + rows - 1

    def offer(self, observation: TimedObservation, request: PolicyRequest) -> bool:
        """Put an observation in the place of one that waits; whether it was taken."""
        with self._condition:
            if not observation.must_go and not self._worthwhile(observation, request):
                return False
            self._waiting = observation
            self._condition.notify()
            return True

    def take(self, timeout_s: float) -> TimedObservation | None:
        """The observation that waits, or None when none comes in time."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting is not None, timeout_s)
            observation, self._waiting = self._waiting, None
            if observation is not None:
                self._used = observation
                self._used_steps.append(observation.timestep)
            return observation

    def _worthwhile(self, observation: TimedObservation, request: PolicyRequest) -> bool:
        if self._used is None:
            return True
        if observation.timestep in self._used_steps:
            return False
        if self._last_row is not None and observation.timestep >= self._last_row:
            return True
        motion = state_vector(observation, request) - state_vector(self._used, request)
        return bool(np.linalg.norm(motion) >= self._least_motion)


class ObservationHistory:
    """The last observations by the client's timestamps, for policies that take several observation steps.

    Args:
        rate: control steps per second, which are the policy's observation steps too.
    """

    def __init__(self, rate: float) -> None:
        self._period_ns = round(NANOSECONDS / rate)
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget everything: an episode, a client or a policy begins."""
        with self._lock:
            self._samples: SampleHistory[TimedObservation] = SampleHistory(
                _KEPT_PERIODS * self._period_ns, _RECENT, _MOST_OBSERVATIONS
            )

    def add(self, observation: TimedObservation) -> None:
        """Take an observation, in whatever order they come."""
        with self._lock:
            self._samples.add(round(observation.timestamp * NANOSECONDS), observation)

    def before(self, observation: TimedObservation, steps: int) -> list[TimedObservation | None]:
        """The observations of the ``steps`` - 1 steps before this one, oldest first; None where none is
        within half a step."""
        times = step_times(round(observation.timestamp * NANOSECONDS), steps, self._period_ns)[:-1]
        with self._lock:
            return [self._samples.nearest(time_ns, self._period_ns // 2) for time_ns in times]


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]
