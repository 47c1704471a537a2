"""Two cameras that only publish: frames of a wanted size and rate, stamped when they are handed over.

The frame's number is its ``frame_id``, so that a receiver knows how many there were.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any

from rclpy.node import Node
from sensor_msgs.msg import Image

from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.process import run_node

CAMERAS = ("front", "wrist")


class TransportSource(Node):
    """Publishes until it is stopped."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("transport_source", **node_options)
        width = self.declare_parameter("image_width", 640).value
        height = self.declare_parameter("image_height", 480).value
        rate = self.declare_parameter("camera_rate", 30.0).value
        self._sent = 0
        self._image = Image(
            width=width,
            height=height,
            encoding="rgb8",
            step=3 * width,
            data=array("B", bytes(3 * width * height)),
        )
        self._cameras = [
            self.create_publisher(Image, f"camera/{name}/image_raw", qos.CAMERA) for name in CAMERAS
        ]
        self.create_timer(1.0 / rate, self._publish)

    def _publish(self) -> None:
        self._sent += 1
        self._image.header.frame_id = str(self._sent)
        for camera in self._cameras:
            self._image.header.stamp = self.get_clock().now().to_msg()
            camera.publish(self._image)

    def stop(self) -> bool:
        """Nothing is left running."""
        return True


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM."""
    return run_node(TransportSource, args)


if __name__ == "__main__":
    sys.exit(main())
