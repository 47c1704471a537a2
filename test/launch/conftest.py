"""A small policy for the simulated robot, and launch files run as `ros2 launch` runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint

LAUNCH = Path(__file__).parents[2] / "launch"
PATIENCE_S = 60.0
# What `ros2 launch FILE NAME:=VALUE...` does, without the ros2 command.
RUNNER = """
import sys
from launch import LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource
arguments = [tuple(item.split(":=", 1)) for item in sys.argv[2:]]
service = LaunchService(noninteractive=True)
service.include_launch_description(
    IncludeLaunchDescription(AnyLaunchDescriptionSource(sys.argv[1]), launch_arguments=arguments)
)
sys.exit(service.run())
"""


@pytest.fixture(scope="session")
def small_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An IMPACT checkpoint that fits the simulated robot and runs in a moment."""
    folder = tmp_path_factory.mktemp("policy") / "impact"
    cameras = (Camera("front", 64, 96), Camera("wrist", 64, 96))
    sizes = {
        "dim_model": 32,
        "heads": 2,
        "feedforward": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "chunk_size": 40,
    }
    text = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    settings = {f"text_config.{name}": value for name, value in text.items()}
    make_checkpoint("impact", folder, Options(cameras=cameras, sizes=sizes, settings=settings))
    return folder


@pytest.fixture(scope="session")
def small_planner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driving planner that loads in a moment."""
    folder = tmp_path_factory.mktemp("planner") / "minddrive"
    make_checkpoint("minddrive", folder, small_options("minddrive"))
    return folder


class LaunchedFile:
    """A launch file in a process of its own, with all that it printed."""

    def __init__(self, name: str, arguments: dict[str, str], log: Path) -> None:
        self.log = log
        command = [sys.executable, "-c", RUNNER, str(LAUNCH / name)]
        command += [f"{argument}:={value}" for argument, value in arguments.items()]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=dict(os.environ)
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self) -> int:
        """The exit status, once it has ended by itself."""
        return self._process.wait(PATIENCE_S)

    def interrupt(self) -> int:
        """Ctrl-C; the exit status."""
        return self.end(signal.SIGINT)

    def end(self, number: signal.Signals) -> int:
        """The exit status after a signal to the launch alone."""
        self._process.send_signal(number)
        return self.wait()

    def nodes(self) -> dict[str, int]:
        """Those that were started: process numbers by name."""
        found = re.findall(r"\[(\w+)-\d+\]: process started with pid \[(\d+)\]", self.output())
        return {name: int(number) for name, number in found}

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Fails, with what the launch printed, when the condition does not come true or the launch ends."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process.poll() is None, f"the launch ended early:\n{self.output()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{self.output()}"

    def close(self) -> None:
        """Ends the launch and every node that it started, whatever their state."""
        with suppress(ProcessLookupError):  # none of them is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def launch_file(tmp_path: Path) -> Iterator[Callable[..., LaunchedFile]]:
    """Starts a launch file with arguments; everything has ended after the test."""
    started: list[LaunchedFile] = []

    def start(name: str, **arguments: str) -> LaunchedFile:
        started.append(LaunchedFile(name, arguments, tmp_path / f"{name}.{len(started)}.log"))
        return started[-1]

    yield start
    for launched in started:
        launched.close()
