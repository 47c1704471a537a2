"""Timing a convolution by each of its algorithms."""

from __future__ import annotations

import math

import numpy as np

import vla_simd_ros._engine as _engine
from vla_simd_ros.executors.convolution import ConvolutionShape, Form

_RUNS = 6


def time_convolution(engine: _engine.Engine, shape: ConvolutionShape, form: Form) -> float:
    """The shortest time in milliseconds of a convolution in this form, of zeros: the time does not depend on
    the values."""
    inputs, outputs = shape.height * shape.width, math.prod(shape.out_size)
    y_at = -(-inputs * shape.channels // 16) * 64  # the next whole line, in bytes
    arena = _engine.Arena(y_at + outputs * shape.filters * 4)
    builder = _engine.ProgramBuilder(engine, arena)
    weights = np.zeros((shape.filters, shape.kernel**2 * shape.channels), np.float32)
    builder.conv2d(
        form.name,
        x=_engine.View(0, inputs, shape.channels, shape.channels),
        in_size=(shape.height, shape.width),
        weights=engine.pack(weights, *form.packing),
        kernel=(shape.kernel, shape.kernel),
        stride=(shape.stride,) * 2,
        padding=((shape.padding,) * 2,) * 2,
        dilation=1,
        y=_engine.View(y_at, outputs, shape.filters, shape.filters),
        out_size=shape.out_size,
        activation="relu",
    )
    program = builder.build()
    return min(sum(program.profile()) for _ in range(_RUNS)) * 1e-6
