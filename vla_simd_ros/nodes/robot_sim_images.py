"""Camera pictures of the simulated robot as ROS messages."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import Image


def image_message(picture: npt.NDArray[np.uint8], stamp: Any, frame_id: str) -> Image:
    """An rgb8 message of `picture` [height, width, 3], captured at `stamp` (builtin_interfaces/Time)."""
    height, width, channels = picture.shape
    message = Image(height=height, width=width, encoding="rgb8", is_bigendian=0, step=width * channels)
    message.header.stamp = stamp
    message.header.frame_id = frame_id
    # The only type that the message takes over without looking at every byte.
    message.data = array.array("B", picture.tobytes())
    return message
