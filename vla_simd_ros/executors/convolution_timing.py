"""Timing a convolution by each of its algorithms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import vla_simd_ros._engine as _engine
from vla_simd_ros.executors.convolution_forms import ConvolutionShape, Form
from vla_simd_ros.graph.ir import Array

_TURNS = 6
# A clock is read once for so much work, of many runs where they are short.
_LEAST_TIMED_NS = 200_000
# Filters of more bytes come from memory in a query: before each run so much else is read.
_NEAR_BYTES, _EVICTING_BYTES = 1 << 20, 64 << 20
# What is slower by this factor after so many turns is slower: it gets no more.
_HOPELESS, _FEW_TURNS = 2.0, 3


def time_convolution(
    engine: _engine.Engine, shape: ConvolutionShape, forms: Sequence[Form]
) -> dict[Form, list[float]]:
    """The time in milliseconds of a convolution in each form, turn by turn, of zeros: the time does not
    depend on the values. The order of the forms changes from turn to turn, so that what else the machine does
    meets all of them. What turns out to be far slower than others gets fewer turns."""
    other = np.ones(_EVICTING_BYTES // 8)
    timed = {form: _Timed(engine, shape, form, other) for form in forms}
    times: dict[Form, list[float]] = {form: [] for form in forms}
    left = list(forms)
    for turn in range(1, _TURNS + 1):
        for form in left:
            times[form].append(timed[form].run_ms())
        enough = _HOPELESS * min(min(turns) for turns in times.values())
        left = [form for form in reversed(left) if turn < _FEW_TURNS or min(times[form]) < enough]
    return times


class _Timed:
    """A program of one convolution, its filters where a query finds them: reading ``other`` pushes those out
    of the caches that would not stay there."""

    def __init__(self, engine: _engine.Engine, shape: ConvolutionShape, form: Form, other: Array) -> None:
        weights = np.zeros((shape.filters, shape.kernel**2 * shape.channels), np.float32)
        packed = engine.pack(weights, *form.packing)
        self._program = _program(engine, shape, form, packed)
        self._other = other if packed.bytes > _NEAR_BYTES else None
        first = self._program.time(1)
        self._runs = 1 if self._other is not None else 1 + _LEAST_TIMED_NS // max(1, first)

    def run_ms(self) -> float:
        if self._other is not None:
            self._other.max()
        return self._program.time(self._runs) / self._runs * 1e-6


def _program(
    engine: _engine.Engine, shape: ConvolutionShape, form: Form, weights: _engine.PackedWeights
) -> _engine.Program:
    inputs, outputs = shape.height * shape.width, math.prod(shape.out_size)
    y_at = -(-inputs * shape.channels // 16) * 64  # the next whole line, in bytes
    arena = _engine.Arena(y_at + outputs * shape.filters * 4)
    builder = _engine.ProgramBuilder(engine, arena)
    emit = builder.conv2d_flat if form.flat else builder.conv2d
    emit(
        form.name,
        x=_engine.View(0, inputs, shape.channels, shape.channels),
        in_size=(shape.height, shape.width),
        weights=weights,
        kernel=(shape.kernel, shape.kernel),
        stride=(shape.stride,) * 2,
        padding=((shape.padding,) * 2,) * 2,
        dilation=1,
        y=_engine.View(y_at, outputs, shape.filters, shape.filters),
        out_size=shape.out_size,
        activation="relu",
    )
    return builder.build()
