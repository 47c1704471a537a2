"""ROS 2 nodes: the only part of the package that imports rclpy."""

from __future__ import annotations

import signal
import sys

# `python -m vla_simd_ros.nodes.NAME` is about to load that module: nothing has to be taken down yet, and an
# exception may get lost where modules are loaded. What then runs sets handlers of its own.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
