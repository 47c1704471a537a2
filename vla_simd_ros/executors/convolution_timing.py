"""Timing a convolution by each of its algorithms."""

from __future__ import annotations

import math

import numpy as np

import vla_simd_ros._engine as _engine
from vla_simd_ros.executors.convolution import ConvolutionShape, algorithm

_RUNS = 6


def time_convolution(engine: _engine.Engine, shape: ConvolutionShape, side: int) -> float:
    """The shortest time in milliseconds of a convolution with this side of its tiles, of zeros: the time does
    not depend on the values."""
    out_size = (shape.height + 2 * shape.padding - 2, shape.width + 2 * shape.padding - 2)
    inputs, outputs = shape.height * shape.width, math.prod(out_size)
    y_at = -(-inputs * shape.channels // 16) * 64  # the next whole line, in bytes
    arena = _engine.Arena(y_at + outputs * shape.filters * 4)
    builder = _engine.ProgramBuilder(engine, arena)
    builder.conv2d(
        algorithm(side),
        x=_engine.View(0, inputs, shape.channels, shape.channels),
        in_size=(shape.height, shape.width),
        weights=engine.pack(np.zeros((shape.filters, 9 * shape.channels), np.float32), side),
        kernel=(3, 3),
        stride=1,
        padding=shape.padding,
        dilation=1,
        y=_engine.View(y_at, outputs, shape.filters, shape.filters),
        out_size=out_size,
        activation="relu",
    )
    program = builder.build()
    return min(sum(program.profile()) for _ in range(_RUNS)) * 1e-6
