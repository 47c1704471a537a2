"""Noticing that simulated time has jumped."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.clock import Clock, JumpHandle, JumpThreshold, TimeJump
from rclpy.duration import Duration

FORWARD_S = 1.0


def on_clock_jump(clock: Clock, callback: Callable[[], None]) -> JumpHandle:
    """Call back when the clock goes backwards, jumps ahead by a second, or changes its source.

    The caller keeps the handle for as long as it wants to be called.
    """

    def jumped(_: TimeJump) -> None:
        callback()

    threshold = JumpThreshold(
        min_forward=Duration(seconds=FORWARD_S), min_backward=Duration(nanoseconds=-1), on_clock_change=True
    )
    return clock.create_jump_callback(threshold, post_callback=jumped)
