"""The gRPC service: a robot's observations in, chunks of actions out.

The wire is that of LeRobot's asynchronous inference (0.4 and 0.6), so that its ``robot_client`` needs no
change. What a client sends wrongly is answered with an error status and a sentence; the server goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc

from vla_simd_ros.inference import InputError, Policy
from vla_simd_ros.server import wire
from vla_simd_ros.server.action_pickle import dump_actions
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.observations import check_request, policy_observation, task_of
from vla_simd_ros.server.requests import PolicyRequest, TimedObservation, policy_request, timed_observation
from vla_simd_ros.server.session import ClientSlot, ObservationHistory, ObservationSlot

_LOGGER = logging.getLogger(__name__)
_MIB = 1024 * 1024
# A client streams pieces of 2 MiB.
_MAX_PIECE = 4 * _MIB
_STOP_GRACE_S = 1.0
# What a client named wrongly may be longer than a reply's trailer can carry.
_LONGEST_REASON = 1000


@dataclass(frozen=True)
class ServerSettings:
    """How a policy is served.

    Attributes:
        host: address to listen at; others than this machine can reach only what is not the loopback.
        port: 0 takes a free one.
        rate: control steps per second of the robot.
        observation_timeout_s: how long a request for actions waits for an observation.
        least_motion: see :class:`ObservationSlot`.
        max_observation_bytes: largest observation, all pieces together.
        client_idle_s: a client that has not called for this long may be replaced by another.
        num_steps: solver steps of a policy that iterates; None: as many as its checkpoint says.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    rate: float = 30.0
    observation_timeout_s: float = 2.0
    least_motion: float = 1.0
    max_observation_bytes: int = 64 * _MIB
    client_idle_s: float = 10.0
    num_steps: int | None = None


class PolicyServicer:
    """The methods of the service, called from gRPC's threads.

    Args:
        find_policy: the policy for a client's request; raises WireError for one that is not served.
        settings: how it is served.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        find_policy: Callable[[PolicyRequest], Policy],
        settings: ServerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_policy = find_policy
        self._settings = settings
        self._client = ClientSlot(clock, settings.client_idle_s)
        self._observations = ObservationSlot(settings.least_motion)
        self._history = ObservationHistory(settings.rate)
        # A policy is used by one thread at a time.
        self._policy_lock = threading.Lock()
        self._served: tuple[Policy, PolicyRequest] | None = None

    def ready(self, _: Any, context: grpc.ServicerContext) -> Any:
        """A client introduces itself."""
        peer = context.peer()
        try:
            self._client.claim(peer)
        except WireError as error:
            _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, error)
        self._forget()
        _LOGGER.info("client %s is ready", peer)
        return wire.Empty()

    def send_policy_instructions(self, setup: Any, context: grpc.ServicerContext) -> Any:
        """The client says which policy it wants and what its robot has."""
        self._admit(context)
        try:
            request = policy_request(setup.data)
            with self._policy_lock:
                policy = self._find_policy(request)
                check_request(request, policy.spec)
                if self._settings.num_steps is not None:
                    policy.noise(0, self._settings.num_steps)  # refuses a number that it cannot do
                self._served = policy, request
        except (WireError, ValueError, OSError) as error:
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        finally:
            self._client.touch(context.peer())
        self._forget()
        rows = min(request.actions_per_chunk, policy.spec.chunk_size)
        _LOGGER.info("serving '%s' to %s, %d actions per chunk", policy.name, context.peer(), rows)
        return wire.Empty()

    def send_observations(self, pieces: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """An observation, in pieces."""
        self._admit(context)
        try:
            policy, request = self._configured()
            observation = timed_observation(join(pieces, self._settings.max_observation_bytes))
            if policy.spec.observation_steps > 1:
                self._history.add(observation)
            taken = self._observations.offer(observation, request)
        except WireError as error:
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        _LOGGER.debug("observation %d %s", observation.timestep, "waits" if taken else "is skipped")
        return wire.Empty()

    def get_actions(self, _: Any, context: grpc.ServicerContext) -> Any:
        """The chunk for the newest observation; no data when none comes in time."""
        self._admit(context)
        try:
            self._configured()
            observation = self._observations.take(self._settings.observation_timeout_s)
            return wire.Actions(data=b"" if observation is None else self._predict(observation))
        except (WireError, InputError) as error:
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error)
        except Exception as error:
            _LOGGER.exception("a query failed")
            _refuse(context, grpc.StatusCode.INTERNAL, error)
        finally:
            self._client.touch(context.peer())

    def _predict(self, timed: TimedObservation) -> bytes:
        with self._policy_lock:
            policy, request = self._configured()
            past = self._history.before(timed, policy.spec.observation_steps)
            observation = policy_observation(timed, request, policy.spec, past)
            if policy.spec.uses_instruction:
                _set_instruction(policy, task_of(timed))
            query = policy.query(observation, num_steps=self._settings.num_steps)
        if query.decoded is not None and not query.decoded.converged:
            ended = query.decoded.exit.value
            _LOGGER.warning("observation %d: its tokens have not converged (%s)", timed.timestep, ended)
            return b""
        rows = query.actions[: request.actions_per_chunk]
        self._observations.answered(timed, len(rows))
        _LOGGER.debug("observation %d: %.1f ms", timed.timestep, query.timing.total_ms)
        return dump_actions(rows, timed.timestamp, timed.timestep, 1.0 / self._settings.rate)

    def _forget(self) -> None:
        """Observations of before belong to another client, policy or episode."""
        self._observations.reset()
        self._history.reset()

    def _admit(self, context: grpc.ServicerContext) -> None:
        try:
            self._client.check(context.peer())
        except WireError as error:
            _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, error)

    def _configured(self) -> tuple[Policy, PolicyRequest]:
        if self._served is None:
            raise WireError("the client has not said which policy it wants (SendPolicyInstructions)")
        return self._served


def _set_instruction(policy: Policy, task: str) -> None:
    if policy.set_instruction(task):
        _LOGGER.info("instruction: %s%s", task, " (cut)" if policy.instruction_truncated else "")


def join(pieces: Iterator[Any], limit: int) -> bytes:
    """The whole of a streamed message. Raises :class:`WireError` for one that is too long or has no end."""
    whole = bytearray()
    for piece in pieces:
        if piece.transfer_state == wire.TransferState.BEGIN:
            whole.clear()
        elif piece.transfer_state not in (wire.TransferState.MIDDLE, wire.TransferState.END):
            raise WireError(
                f"a piece of an observation has the unknown transfer state {piece.transfer_state}"
            )
        if len(whole) + len(piece.data) > limit:
            raise WireError(f"an observation is larger than {limit} bytes")
        whole += piece.data
        if piece.transfer_state == wire.TransferState.END:
            return bytes(whole)
    raise WireError("an observation ended without its last piece")


class PolicyServer:
    """A gRPC server around a :class:`PolicyServicer`. Raises OSError where it cannot listen."""

    def __init__(self, servicer: PolicyServicer, settings: ServerSettings) -> None:
        # A request for actions waits for its observation, which needs threads of its own.
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=8, thread_name_prefix="policy-server"),
            options=[("grpc.max_receive_message_length", _MAX_PIECE), ("grpc.so_reuseport", 0)],
        )
        self._server.add_generic_rpc_handlers((_handlers(servicer),))
        address = f"{settings.host}:{settings.port}"
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {address}: {error}") from None
        """The port it listens at."""

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def wait(self) -> None:
        """Until it is stopped."""
        self._server.wait_for_termination()

    def stop(self) -> None:
        """Take no more calls and end those in progress."""
        self._server.stop(_STOP_GRACE_S).wait()


def _handlers(servicer: PolicyServicer) -> grpc.GenericRpcHandler:
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    methods = {
        "Ready": (unary, servicer.ready, wire.Empty, wire.Empty),
        "SendPolicyInstructions": (unary, servicer.send_policy_instructions, wire.PolicySetup, wire.Empty),
        "SendObservations": (stream, servicer.send_observations, wire.Observation, wire.Empty),
        "GetActions": (unary, servicer.get_actions, wire.Empty, wire.Actions),
    }
    return grpc.method_handlers_generic_handler(
        wire.SERVICE,
        {
            name: kind(
                function, request_deserializer=takes.FromString, response_serializer=gives.SerializeToString
            )
            for name, (kind, function, takes, gives) in methods.items()
        },
    )


def _shown(text: str) -> str:
    """A text that a client may have written parts of: as long as a reply can carry, no control characters."""
    kept = text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} ..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in kept)


def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, error: Exception) -> NoReturn:
    text = _shown(str(error))
    _LOGGER.warning("%s: %s", context.peer(), text)
    context.abort(code, text)
    raise AssertionError("abort returns never")
