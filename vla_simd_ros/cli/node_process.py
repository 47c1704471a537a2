"""Commands that need ROS prepare without it, and then become the process that starts the nodes."""

from __future__ import annotations

import importlib.util
import os
import sys

_SIMULATION = "pip install 'vla_simd_ros[sim]'"
_REMEDIES = {
    "rclpy": "source a ROS 2 installation (source /opt/ros/jazzy/setup.bash), or use: ./run vla_simd ...",
    "mujoco": _SIMULATION,
    "matplotlib": _SIMULATION,
}
SIMULATED = tuple(_REMEDIES)
"""What the nodes and the simulated robot need."""


class NodesUnavailable(RuntimeError):
    """Nodes cannot be started here; the message says why, and what to do."""


def require(*modules: str) -> None:
    """Raise NodesUnavailable where one of the modules, all of them in `SIMULATED`, is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise NodesUnavailable(f"this needs the Python package {module}: {_REMEDIES[module]}")


def become(module: str, settings: str) -> int:
    """Replace this process by one of a module of ``nodes``; its exit status is that one's."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", f"vla_simd_ros.nodes.{module}", settings])
