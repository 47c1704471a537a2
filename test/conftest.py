"""What all tests share: the markers that may skip a test, a ROS domain of this run's own, and what the tests
of several packages import from ``checkpoints/``: small policies and a tokenizer's model."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "checkpoints"))

# Packages that a ROS installation has and the wheels lack. A test that needs one says so with a marker and
# shows as skipped, with the reason, where it is missing; nothing else is ever skipped.
REQUIREMENTS = {
    "needs_launch": ("launch_ros", "the packages launch and launch_ros are not installed"),
    "needs_message_filters": ("message_filters", "the package message_filters is not installed"),
    "needs_cv_bridge": ("cv_bridge", "the package cv_bridge is not installed"),
    "needs_autoware": ("autoware_planning_msgs", "the package autoware_planning_msgs is not installed"),
}

# The reference implementations live in an environment of their own (scripts/make_reference_env.sh).
collect_ignore = [] if importlib.util.find_spec("lerobot") else ["reference"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {
        marker: reason
        for marker, (module, reason) in REQUIREMENTS.items()
        if importlib.util.find_spec(module) is None
    }
    if shutil.which("ros2") is None:
        missing["needs_ros2cli"] = "the ros2 command is not installed"
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def own_ros_domain() -> Iterator[None]:
    """Keep the nodes of this test run, and those of the processes it starts, to themselves.

    Discovery stays on this machine, in a domain that no other coordinated test run uses at the same time.
    """
    before = {name: os.environ.get(name) for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE")}
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    if importlib.util.find_spec("domain_coordinator") is None:
        yield
    else:
        from domain_coordinator import domain_id

        with domain_id() as number:
            os.environ["ROS_DOMAIN_ID"] = str(number)
            yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
