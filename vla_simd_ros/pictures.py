"""Pictures of any size to the size that a policy takes."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]


def resize(picture: Picture, height: int, width: int) -> Picture:
    """A picture, uint8 [H, W, C], at another size.

    Bilinear between pixel centres, without smoothing when it gets smaller, as LeRobot brings a robot's frames
    to the size of a policy (``torch.nn.functional.interpolate`` on uint8). That works along rows first and
    rounds to uint8 before it goes along columns, and so does this: most sizes give the same bits, the others
    now and then a value that is one or two off.
    """
    if picture.shape[:2] == (height, width):
        return picture
    along_rows = cv2.resize(picture, (width, picture.shape[0]), interpolation=cv2.INTER_LINEAR_EXACT)
    resized = cv2.resize(along_rows, (width, height), interpolation=cv2.INTER_LINEAR_EXACT)
    return np.asarray(resized, np.uint8).reshape(height, width, picture.shape[2])
