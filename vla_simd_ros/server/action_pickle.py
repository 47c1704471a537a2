"""Writing the pickle that LeRobot's client expects: a list of its TimedAction, each with a torch tensor.

Written by opcode, so that neither LeRobot nor PyTorch is needed here: the client's own unpickler looks the
names up on its side.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_PROTOCOL = pickle.PROTO + bytes([2])
_TIMED_ACTION = pickle.GLOBAL + b"lerobot.async_inference.helpers\nTimedAction\n"
_TENSOR = pickle.GLOBAL + b"torch\ntensor\n"


def dump_actions(
    actions: npt.NDArray[np.floating[Any]], timestamp: float, timestep: int, period: float
) -> bytes:
    """Pickle a chunk.

    Args:
        actions: [rows, width] in robot units; float32 arrives unchanged.
        timestamp: seconds of the observation; row i is for ``timestamp + i * period``.
        timestep: number of the observation; row i has ``timestep + i``.
        period: seconds of a control step.
    """
    rows = (
        _call(_TIMED_ACTION, _float(timestamp + i * period), _int(timestep + i), _tensor(row))
        for i, row in enumerate(actions)
    )
    return _PROTOCOL + _list(rows) + pickle.STOP


def _tensor(values: npt.NDArray[np.floating[Any]]) -> bytes:
    return _call(_TENSOR, _list(_float(float(value)) for value in values))


def _call(function: bytes, *arguments: bytes) -> bytes:
    return function + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


def _list(items: Iterable[bytes]) -> bytes:
    return pickle.EMPTY_LIST + pickle.MARK + b"".join(items) + pickle.APPENDS


def _float(value: float) -> bytes:
    return pickle.BINFLOAT + struct.pack(">d", value)


def _int(value: int) -> bytes:
    size = (value.bit_length() + 8) // 8
    return pickle.LONG1 + bytes([size]) + value.to_bytes(size, "little", signed=True)
