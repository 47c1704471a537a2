"""Lifecycle transitions that say why they failed and leave the node usable.

rclpy turns an exception in a transition into the ERROR state without a word; here it is logged, and what the
transition had made so far is undone. A request for a transition that the present state does not have ends
the whole process in rclpy; here it is answered.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE


def attempt(
    node: LifecycleNode,
    name: str,
    action: Callable[[], None],
    expected: tuple[type[Exception], ...] = (),
    undo: Callable[[], object] | None = None,
) -> TransitionCallbackReturn:
    """Run a transition's action; FAILURE, a logged reason and ``undo`` when it raises.

    Args:
        node: the node in transition.
        name: the transition, for the log.
        action: what the transition does.
        expected: errors whose text is the whole reason; others are logged with a traceback.
        undo: brings the node back to where it was before.
    """
    try:
        action()
    except expected as error:
        node.get_logger().error(f"{name} failed: {error}")
    except Exception:
        node.get_logger().error(f"{name} failed:\n{traceback.format_exc()}")
    else:
        return SUCCESS
    if undo is not None:
        undo()
    return FAILURE


def refuse_impossible_transitions(node: LifecycleNode) -> None:
    """Make the node answer such requests with a failure, and log them."""
    service = node._service_change_state
    change = service.callback

    def answer(request: ChangeState.Request, response: ChangeState.Response) -> ChangeState.Response:
        try:
            return change(request, response)
        except RuntimeError as error:  # rclpy's RCLError, which it does not export
            state = node._state_machine.current_state[1]
            wanted = request.transition.label or request.transition.id
            node.get_logger().error(f"transition {wanted} refused, the node is {state}: {error}")
            response.success = False
            return response

    service.callback = answer
