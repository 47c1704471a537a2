"""Whether a camera delivers, and whether it delivers what its stamps promise."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

WINDOW = 90
ENOUGH = 20
EXPECTED_SHARE = 0.8

ADVICE = (
    "frames larger than the shared-memory segment of Fast DDS get lost: set FASTRTPS_DEFAULT_PROFILES_FILE "
    "to this package's config/fastdds_large_images.xml for the camera driver and for this node"
)


class CameraHealth:
    """Watches the frames of one camera.

    Attributes:
        received: frames that arrived.
        unusable: frames refused for their stamp or their picture.
        last_ns: time of arrival of the last usable frame, or None.
        last_fault: what was wrong with the last unusable frame.
    """

    def __init__(self) -> None:
        self.received = 0
        self.unusable = 0
        self.last_ns: int | None = None
        self.last_fault = ""
        # Stamps of usable frames, each with the number of refused ones that had arrived by then.
        self._frames: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def usable(self, stamp_ns: int, now_ns: int) -> None:
        """A good frame arrived."""
        self.received += 1
        self.last_ns = now_ns
        self._frames.append((stamp_ns, self.unusable))

    def fault(self, message: str) -> None:
        """A frame arrived that cannot be used."""
        self.received += 1
        self.unusable += 1
        self.last_fault = message

    def reset(self) -> None:
        """Forget times, after a jump of the clock."""
        self.last_ns = None
        self._frames.clear()

    def silent_ns(self, now_ns: int, since_ns: int) -> int:
        """Time since the last usable frame, or since ``since_ns`` before the first."""
        return now_ns - (self.last_ns if self.last_ns is not None else since_ns)

    def delivered_share(self) -> float | None:
        """Received frames over the frames that their stamps promise; None before enough have come.

        A camera stamps at a steady period, which the shorter steps between received stamps show even when
        many frames are lost; the time they span then holds a known number of frames. Frames that were
        refused arrived all the same.
        """
        if len(self._frames) < ENOUGH:
            return None
        steps = np.array([b - a for (a, _), (b, _) in pairwise(self._frames)], dtype=np.float64)
        period = float(np.percentile(steps, 10))
        (first_ns, refused_before), (last_ns, refused) = self._frames[0], self._frames[-1]
        arrived = len(steps) + refused - refused_before
        return float(min(1.0, arrived * period / (last_ns - first_ns)))

    def loss(self, camera: str) -> str | None:
        """What to tell the user when much less arrives than the stamps promise, else None."""
        share = self.delivered_share()
        if share is None or share >= EXPECTED_SHARE:
            return None
        return f"camera '{camera}' delivers {share:.0%} of the frames that its stamps promise; {ADVICE}"
