"""Requests for transitions that a node's state does not have."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState

from vla_simd_ros.nodes.chunk_executor_node import ChunkExecutorNode
from vla_simd_ros.nodes.policy_node import PolicyNode


@pytest.mark.parametrize("kind", [ChunkExecutorNode, PolicyNode])
@pytest.mark.parametrize(
    "wanted",
    [Transition(id=Transition.TRANSITION_ACTIVATE), Transition(id=200), Transition(label="take_off")],
)
def test_an_impossible_transition_is_refused_and_the_node_goes_on(
    ros: Any, kind: Any, wanted: Transition
) -> None:
    name = ros.add(kind).get_fully_qualified_name()
    assert not ros.call(ChangeState, f"{name}/change_state", ChangeState.Request(transition=wanted)).success
    assert ros.call(GetState, f"{name}/get_state", GetState.Request()).current_state.label == "unconfigured"


def test_a_second_start_of_an_active_node_changes_nothing(
    ros: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    node = ros.add(ChunkExecutorNode)
    node.trigger_configure()
    node.trigger_activate()
    name = node.get_fully_qualified_name()
    configure = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    assert not ros.call(ChangeState, f"{name}/change_state", configure).success
    assert ros.call(GetState, f"{name}/get_state", GetState.Request()).current_state.label == "active"
    assert "transition 1 refused, the node is active" in capfd.readouterr().err
