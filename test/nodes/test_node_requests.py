"""Requests that get lost, and responses that do: by a service whose failures the test decides."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import SetParametersResult
from rcl_interfaces.srv import SetParameters

from vla_simd_ros.nodes.node_requests import REPEAT_S, NodeRequests


class Future:
    def __init__(self) -> None:
        self.response: Any = None

    def done(self) -> bool:
        return self.response is not None

    def result(self) -> Any:
        return self.response


class Client:
    def __init__(self) -> None:
        self.ready = True
        self.calls: list[tuple[Any, Future]] = []

    def service_is_ready(self) -> bool:
        return self.ready

    def call_async(self, request: Any) -> Future:
        self.calls.append((request, Future()))
        return self.calls[-1][1]


class Node:
    """Hands out one client for each service."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}

    def create_client(self, kind: Any, service: str) -> Client:
        assert service not in self.clients
        self.clients[service] = Client()
        return self.clients[service]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def requests(node: Node, clock: Clock) -> NodeRequests:
    return NodeRequests(node, clock)  # type: ignore[arg-type]


def result(successful: bool) -> SetParameters.Response:
    return SetParameters.Response(results=[SetParametersResult(successful=successful, reason="because")])


def state(number: int) -> GetState.Response:
    response = GetState.Response()
    response.current_state.id = number
    return response


def test_a_parameter_is_set_with_one_request(requests: NodeRequests, node: Node, clock: Clock) -> None:
    pending = requests.set_parameter("policy_node", "window", 8)
    assert pending.poll() is None
    client = node.clients["policy_node/set_parameters"]
    ((request, future),) = client.calls
    assert request.parameters[0].name == "window"
    assert request.parameters[0].value.integer_value == 8
    clock.now = 0.9 * REPEAT_S
    assert pending.poll() is None
    assert len(client.calls) == 1
    future.response = result(False)
    assert pending.poll().reason == "because"


def test_a_parameter_waits_for_its_service(requests: NodeRequests, node: Node) -> None:
    pending = requests.set_parameter("policy_node", "window", 8)
    client = node.clients["policy_node/set_parameters"]
    client.ready = False
    assert pending.poll() is None
    assert not client.calls
    client.ready = True
    assert pending.poll() is None
    assert len(client.calls) == 1


def test_an_unanswered_parameter_is_set_again(requests: NodeRequests, node: Node, clock: Clock) -> None:
    pending = requests.set_parameter("policy_node", "window", 8)
    pending.poll()
    clock.now = REPEAT_S
    pending.poll()
    client = node.clients["policy_node/set_parameters"]
    (_, _), (again, future) = client.calls
    assert again.parameters[0].value.integer_value == 8
    future.response = result(True)
    assert pending.poll().successful


def test_requests_to_one_service_share_a_client(requests: NodeRequests, node: Node) -> None:
    requests.set_parameter("policy_node", "window", 8)
    requests.set_parameter("policy_node", "mode", "lagged")
    assert list(node.clients) == ["policy_node/set_parameters"]


@pytest.mark.parametrize("success", [True, False])
def test_a_transition_is_answered(requests: NodeRequests, node: Node, success: bool) -> None:
    pending = requests.change_state("policy_node", Transition.TRANSITION_CONFIGURE)
    assert pending.poll() is None
    ((request, future),) = node.clients["policy_node/change_state"].calls
    assert request.transition.id == Transition.TRANSITION_CONFIGURE
    future.response = ChangeState.Response(success=success)
    assert pending.poll() is success


def test_a_lost_response_of_a_transition_is_made_up_for_by_the_state(
    requests: NodeRequests, node: Node, clock: Clock
) -> None:
    pending = requests.change_state("policy_node", Transition.TRANSITION_ACTIVATE)
    pending.poll()
    asked = node.clients["policy_node/get_state"].calls
    assert not asked
    clock.now = REPEAT_S
    assert pending.poll() is None
    asked[0][1].response = state(State.PRIMARY_STATE_ACTIVE)
    assert pending.poll() is True
    assert len(node.clients["policy_node/change_state"].calls) == 1


def test_a_transition_under_way_is_waited_for(requests: NodeRequests, node: Node, clock: Clock) -> None:
    pending = requests.change_state("policy_node", Transition.TRANSITION_CONFIGURE)
    changes = node.clients["policy_node/change_state"].calls
    asked = node.clients["policy_node/get_state"].calls
    pending.poll()
    for turn in range(1, 4):
        clock.now = turn * REPEAT_S
        assert pending.poll() is None
        assert len(asked) == turn
        asked[-1][1].response = state(State.TRANSITION_STATE_CONFIGURING)
        assert pending.poll() is None
    assert len(changes) == 1
    changes[0][1].response = ChangeState.Response(success=True)
    assert pending.poll() is True


def unanswered(requests: NodeRequests, node: Node, clock: Clock) -> tuple[Any, list[tuple[Any, Future]]]:
    """A transition without a response, whose node has just said that it is where it was; the states asked."""
    pending = requests.change_state("policy_node", Transition.TRANSITION_CONFIGURE)
    pending.poll()
    clock.now = REPEAT_S
    pending.poll()
    asked = node.clients["policy_node/get_state"].calls
    asked[0][1].response = state(State.PRIMARY_STATE_UNCONFIGURED)
    return pending, asked


def test_a_lost_request_for_a_transition_is_repeated(
    requests: NodeRequests, node: Node, clock: Clock
) -> None:
    pending, asked = unanswered(requests, node, clock)
    assert pending.poll() is None
    changes = node.clients["policy_node/change_state"].calls
    assert len(changes) == 2
    # The first one arrived late after all: the second is refused, and the state counts.
    changes[1][1].response = ChangeState.Response(success=False)
    assert pending.poll() is None
    clock.now = 2 * REPEAT_S
    assert pending.poll() is None
    asked[1][1].response = state(State.PRIMARY_STATE_INACTIVE)
    assert pending.poll() is True


def test_a_transition_that_fails_again_and_again_has_failed(
    requests: NodeRequests, node: Node, clock: Clock
) -> None:
    pending, asked = unanswered(requests, node, clock)
    assert pending.poll() is None
    # The response of the first failure was lost; the second arrives, and the node is where it was.
    changes = node.clients["policy_node/change_state"].calls
    changes[1][1].response = ChangeState.Response(success=False)
    assert pending.poll() is None
    clock.now = 2 * REPEAT_S
    assert pending.poll() is None
    asked[1][1].response = state(State.PRIMARY_STATE_UNCONFIGURED)
    assert pending.poll() is False
    assert len(changes) == 2


def test_a_state_told_before_the_refusal_is_not_believed(
    requests: NodeRequests, node: Node, clock: Clock
) -> None:
    pending, asked = unanswered(requests, node, clock)
    pending.poll()
    clock.now = 2 * REPEAT_S
    pending.poll()
    # Both arrive between two polls: the state may have been asked for while the first request was at work.
    asked[1][1].response = state(State.PRIMARY_STATE_UNCONFIGURED)
    changes = node.clients["policy_node/change_state"].calls
    changes[1][1].response = ChangeState.Response(success=False)
    assert pending.poll() is None
    clock.now = 3 * REPEAT_S
    assert pending.poll() is None
    asked[2][1].response = state(State.PRIMARY_STATE_INACTIVE)
    assert pending.poll() is True
    assert len(changes) == 2
