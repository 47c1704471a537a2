"""Lifecycle transitions that say why they failed and leave the node usable.

rclpy turns an exception in a transition into the ERROR state without a word; here it is logged, and what the
transition had made so far is undone.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

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
