"""Running one node as a process that ends within two seconds of SIGINT or SIGTERM.

Python runs its own signal handlers between two bytecodes of the main thread, which may be inside a long call
into native code just then. The signal's number is therefore also written to a pipe that a thread reads:
it stops the loop, and ends the process when the node has not ended by itself in time.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

GRACE_S = 1.7


class ManagedNode(Protocol):
    """What :func:`run_node` needs of a node besides being an rclpy node."""

    def stop(self) -> bool:
        """Bring everything to rest within a second; false when a call that cannot be cancelled still runs."""


class _StopSignals:
    """Turns SIGINT and SIGTERM into a stop request and a deadline.

    Attributes:
        requested: set by either.
        wake: called then, by another thread.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.wake: Callable[[], None] = lambda: None
        self._ended = threading.Event()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.requested.set())
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="stop-signals", daemon=True).start()

    def ended(self) -> None:
        """The node has ended by itself; a second Ctrl-C must not make its end look like a crash."""
        self._ended.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _watch(self) -> None:
        stopping = (signal.SIGINT, signal.SIGTERM)
        while self._read.recv(1)[0] not in stopping:
            pass
        self.requested.set()
        try:
            self.wake()
        finally:  # whatever becomes of that while the node is taken down
            if not self._ended.wait(GRACE_S):
                os._exit(0)


def run_node(make: Callable[[], Node], args: Sequence[str] | None = None) -> int:
    """Make the node and spin it until a signal or a shutdown of the context; returns the exit status.

    Args:
        make: makes the node, which is a :class:`ManagedNode`.
        args: command line arguments with ROS arguments among them; None for those of the process.
    """
    # First: an interrupt that Python raises in the middle of the middleware's start leaves it half made.
    signals = _StopSignals()
    rclpy.init(args=list(args) if args is not None else None, signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    signals.wake = executor.wake
    node = make()
    executor.add_node(node)
    try:
        while not signals.requested.is_set():
            executor.spin_once(timeout_sec=0.5)
    except ExternalShutdownException:
        pass
    except Exception:
        # Whatever went wrong, the arm must not be left in motion.
        node.stop()
        raise
    if not node.stop():
        # A thread is inside a call that nothing can cancel: leave without tearing down under it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()
    signals.ended()
    return 0
