"""Requests to other nodes that survive the loss of a request or of its response.

A response that is sent before the server has discovered the client's reader is dropped, and a busy machine
makes that likely in a client's first moments. What stays unanswered is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger

REPEAT_S = 3.0
"""After so long without a response a request is repeated."""

_GOALS = {
    Transition.TRANSITION_CONFIGURE: State.PRIMARY_STATE_INACTIVE,
    Transition.TRANSITION_ACTIVATE: State.PRIMARY_STATE_ACTIVE,
    Transition.TRANSITION_DEACTIVATE: State.PRIMARY_STATE_INACTIVE,
    Transition.TRANSITION_CLEANUP: State.PRIMARY_STATE_UNCONFIGURED,
}
_PRIMARY_STATES = frozenset(
    (State.PRIMARY_STATE_UNCONFIGURED, State.PRIMARY_STATE_INACTIVE, State.PRIMARY_STATE_ACTIVE)
)


class Pending(Protocol):
    """A request on its way; `poll` is called again and again while the node spins."""

    def poll(self) -> Any:
        """None while there is no answer yet, sending what is due."""
        ...


class NodeRequests:
    """Makes requests in the name of `node`, with one client for each service; `clock` gives seconds."""

    def __init__(self, node: Node, clock: Callable[[], float]) -> None:
        self._node = node
        self._clock = clock
        self._clients: dict[str, Any] = {}

    def set_parameter(self, node: str, name: str, value: Any) -> Pending:
        """Ask `node` to set a parameter; the answer is a SetParametersResult."""
        parameter = Parameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[parameter])
        call = _Call(self._client(SetParameters, f"{node}/set_parameters"), request)
        return _Parameter(_Repeated(call, self._clock))

    def trigger(self, service: str) -> Pending:
        """Ask for what a Trigger service does, and may do twice; the answer is its response."""
        return _Repeated(_Call(self._client(Trigger, service), Trigger.Request()), self._clock)

    def change_state(self, node: str, transition: int) -> Pending:
        """Ask a lifecycle node for a transition (a constant of lifecycle_msgs/Transition) that leads to
        another primary state; the answer is whether it succeeded."""
        request = ChangeState.Request()
        request.transition.id = transition
        change = _Call(self._client(ChangeState, f"{node}/change_state"), request)
        state = _Call(self._client(GetState, f"{node}/get_state"), GetState.Request())
        return _Transition(change, _Repeated(state, self._clock), _GOALS[transition], self._clock)

    def _client(self, kind: Any, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._node.create_client(kind, service)
        return self._clients[service]


class _Call:
    """One request to one service, sent once or several times; the first response of all counts."""

    def __init__(self, client: Any, request: Any) -> None:
        self._client = client
        self._request = request
        self._futures: list[Any] = []

    @property
    def sent(self) -> int:
        """How often it was sent since the answer was last forgotten."""
        return len(self._futures)

    @property
    def answer(self) -> Any:
        """The response, or None."""
        return next((future.result() for future in self._futures if future.done()), None)

    @property
    def last_answered(self) -> bool:
        """Whether the one sent last has its response, after which nothing of it is under way."""
        return bool(self._futures) and bool(self._futures[-1].done())

    def send(self) -> bool:
        """Send if the service is there; whether it is."""
        ready = bool(self._client.service_is_ready())
        if ready:
            self._futures.append(self._client.call_async(self._request))
        return ready

    def forget(self) -> None:
        """Wait for another answer from now on."""
        self._futures.clear()


class _Repeated:
    """An idempotent call, sent every `REPEAT_S` until it is answered."""

    def __init__(self, call: _Call, clock: Callable[[], float]) -> None:
        self._call = call
        self._clock = clock
        self._due = clock()

    def poll(self) -> Any:
        now = self._clock()
        if self._call.answer is None and now >= self._due and self._call.send():
            self._due = now + REPEAT_S
        return self._call.answer

    def again(self) -> None:
        """Forget the answer, and ask anew when the time comes."""
        self._call.forget()
        self._due = self._clock() + REPEAT_S


class _Parameter:
    """The one result of setting one parameter."""

    def __init__(self, response: _Repeated) -> None:
        self._response = response

    def poll(self) -> Any:
        response = self._response.poll()
        return None if response is None else response.results[0]


class _Transition:
    """A transition must not be made twice: while its response is missing, the node's state tells what became
    of it."""

    def __init__(self, change: _Call, state: _Repeated, goal: int, clock: Callable[[], float]) -> None:
        self._change = change
        self._state = state
        self._goal = goal
        self._clock = clock
        self._ask_at = clock() + REPEAT_S
        self._refused = False

    def poll(self) -> bool | None:
        if not self._change.sent:
            self._change.send()
        response = self._change.answer
        # Where several were sent, all but the one that was obeyed are refused: the state knows better.
        if response is not None and (response.success or self._change.sent == 1):
            return bool(response.success)
        return self._reached() if self._clock() >= self._ask_at else None

    def _reached(self) -> bool | None:
        """Whether the node came to the state wanted; the request is repeated where it did not arrive."""
        if self._change.last_answered and not self._refused:
            self._refused = True
            self._state.again()  # what was answered before the refusal says nothing about it
        answer = self._state.poll()
        if answer is None:
            return None
        if answer.current_state.id == self._goal:
            return True
        if answer.current_state.id in _PRIMARY_STATES:
            if self._refused:
                return False
            self._change.send()
        self._state.again()
        return None
