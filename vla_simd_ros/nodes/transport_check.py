"""Whether camera frames arrive, and how long their way and their conversion take on this machine.

The process that ``vla_simd demo --transport-check`` becomes: it starts the cameras as another process and
receives them as the policy node does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image

from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.camera_health import ADVICE
from vla_simd_ros.nodes.demo_main import demo_environment, free_domain
from vla_simd_ros.nodes.demo_processes import ProcessError, ProcessGroup
from vla_simd_ros.nodes.demo_run import DemoError
from vla_simd_ros.nodes.images import PictureSettings, rgb
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.nodes.transport_source import CAMERAS
from vla_simd_ros.policies.base import CameraSpec

SOURCE = "transport_source"
DELIVERED_SHARE, MEDIAN_MS = 0.999, 6.0
"""What is good enough: the share of frames that arrive, and the median of transport and conversion."""
_START_TIMEOUT_S = 30.0
_SETTLE_S = 1.0


@dataclass
class Arrivals:
    """The frames of one camera that arrived: their numbers, and milliseconds of transport and conversion."""

    numbers: list[int] = field(default_factory=list)
    transport: list[float] = field(default_factory=list)
    conversion: list[float] = field(default_factory=list)

    def add(self, number: int, transport_ms: float, conversion_ms: float) -> None:
        """A frame arrived and was converted."""
        self.numbers.append(number)
        self.transport.append(transport_ms)
        self.conversion.append(conversion_ms)

    def clear(self) -> None:
        """Begin anew."""
        for values in (self.numbers, self.transport, self.conversion):
            values.clear()

    @property
    def sent(self) -> int:
        """Frames sent between the first and the last that arrived."""
        return self.numbers[-1] - self.numbers[0] + 1 if self.numbers else 0

    @property
    def share(self) -> float:
        """Of the frames sent, those that arrived."""
        return len(self.numbers) / self.sent if self.numbers else 0.0

    @property
    def median_ms(self) -> float:
        """Transport and conversion together."""
        return float(np.median(np.add(self.transport, self.conversion))) if self.numbers else float("nan")

    @property
    def good(self) -> bool:
        """Whether both bounds are kept."""
        return self.share >= DELIVERED_SHARE and self.median_ms < MEDIAN_MS


def table(arrivals: dict[str, Arrivals]) -> str:
    """For a terminal."""
    lines = [
        f"{'camera':<10}{'sent':>7}{'arrived':>9}{'share':>9}{'transport':>11}{'conversion':>12}{'both':>8}"
    ]
    for name, found in arrivals.items():
        transport, conversion = (
            float(np.median(values)) if values else float("nan")
            for values in (found.transport, found.conversion)
        )
        lines.append(
            f"{name:<10}{found.sent:>7}{len(found.numbers):>9}{found.share:>9.2%}"
            f"{transport:>8.2f} ms{conversion:>9.2f} ms{found.median_ms:>5.2f} ms"
        )
    good = all(found.good for found in arrivals.values())
    bounds = f"at least {DELIVERED_SHARE:.1%} delivered, both under {MEDIAN_MS:g} ms in the median"
    lines.append(f"{bounds}: {'holds' if good else 'DOES NOT HOLD'}")
    if any(found.share < DELIVERED_SHARE for found in arrivals.values()):
        lines.append(ADVICE)
    return "\n".join(lines)


class Receiver(Node):
    """Takes frames as the policy node does."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__("transport_check")
        self.arrivals = {name: Arrivals() for name in CAMERAS}
        self._spec = CameraSpec(height, width)
        for name in CAMERAS:
            self.create_subscription(Image, f"camera/{name}/image_raw", self._receive(name), qos.CAMERA)

    def _receive(self, camera: str) -> Callable[[Image], None]:
        def receive(message: Image) -> None:
            transport_ns = self.get_clock().now().nanoseconds - nanoseconds(message.header.stamp)
            start = time.perf_counter()
            rgb(message, camera, self._spec, PictureSettings())
            spent_ms = (time.perf_counter() - start) * 1e3
            self.arrivals[camera].add(int(message.header.frame_id), transport_ns * 1e-6, spent_ms)

        return receive


@dataclass(frozen=True)
class CheckSettings:
    """What to check: seconds, pictures of this size, and whether with the Fast DDS profile."""

    duration: float
    width: int
    height: int
    rate: float
    profile: bool
    out: Path
    config: Path

    @classmethod
    def from_json(cls, text: str) -> CheckSettings:
        """From what `vla_simd demo` hands over."""
        values = json.loads(text)
        return cls(**{**values, "out": Path(values["out"]), "config": Path(values["config"])})


def measure(settings: CheckSettings, group: ProcessGroup) -> dict[str, Arrivals]:
    """Start the cameras and count for a while.

    Raises:
        ProcessError: the cameras have ended.
        DemoError: no frame of a camera came.
    """
    parameters = {
        "image_width": settings.width, "image_height": settings.height, "camera_rate": settings.rate,
    }  # fmt: skip
    command = [sys.executable, "-m", f"vla_simd_ros.nodes.{SOURCE}", "--ros-args"]
    for name, value in parameters.items():
        command += ["-p", f"{name}:={value}"]
    group.start(SOURCE, command)
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    receiver = Receiver(settings.width, settings.height)
    executor = SingleThreadedExecutor()
    executor.add_node(receiver)
    arrivals = receiver.arrivals
    try:
        _spin(executor, group, _START_TIMEOUT_S, lambda: all(each.numbers for each in arrivals.values()))
        silent = [name for name, each in arrivals.items() if not each.numbers]
        if silent:
            raise DemoError(f"no frame of {', '.join(silent)} arrived within {_START_TIMEOUT_S:g} s")
        _spin(executor, group, _SETTLE_S, lambda: False)
        for each in arrivals.values():
            each.clear()
        _spin(executor, group, settings.duration, lambda: False)
    finally:
        executor.shutdown()
        receiver.destroy_node()
        rclpy.try_shutdown()
    return arrivals


def _spin(
    executor: SingleThreadedExecutor, group: ProcessGroup, seconds: float, done: Callable[[], bool]
) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        executor.spin_once(timeout_sec=0.1)
        group.check()


def run_check(settings: CheckSettings) -> int:
    """Measure and print; 0 when the bounds are kept, else 1."""
    environment = demo_environment(settings.config, free_domain())
    if not settings.profile:
        del environment["FASTRTPS_DEFAULT_PROFILES_FILE"]
        os.environ.pop("FASTRTPS_DEFAULT_PROFILES_FILE", None)
    os.environ.update(environment)
    with ProcessGroup(settings.out / "logs", os.environ) as group:
        arrivals = measure(settings, group)
    how = "with the Fast DDS profile" if settings.profile else "with the default transport of Fast DDS"
    print(
        f"{len(CAMERAS)} cameras, {settings.width}x{settings.height} rgb8 at {settings.rate:g} Hz "
        f"for {settings.duration:g} s, {how}\n"
    )
    print(table(arrivals), flush=True)
    return 0 if all(found.good for found in arrivals.values()) else 1


def main(arguments: Sequence[str]) -> int:
    """Run the check that one JSON argument describes; 0: good, 1: not, 130: interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return run_check(CheckSettings.from_json(arguments[0]))
    except (ProcessError, DemoError) as error:
        print(f"vla_simd demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
