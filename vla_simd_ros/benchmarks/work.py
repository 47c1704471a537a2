"""What an operation has to do at least: multiply-adds, and bytes that move."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from vla_simd_ros.executors.convolution import winograd_form
from vla_simd_ros.executors.convolution_forms import DIRECT, Form
from vla_simd_ros.graph.cost import op_cost
from vla_simd_ros.graph.int8 import INT8, precision_of
from vla_simd_ros.graph.ir import Lifetime, Op, Tensor
from vla_simd_ros.graph.window import Window

_WINOGRAD = "winograd"
STRASSEN = "strassen"
_INT8_WINOGRAD_BYTES = 2  # of a transformed weight


@dataclass(frozen=True)
class Work:
    """``flops`` of the products (of the direct method, for convolutions), ``executed`` those of the algorithm
    in use, and the ``nbytes`` read and written once, ``weight_bytes`` of them constants.

    Where there are products, what follows them does not count, because shares of the rate of fused
    multiply-adds are taken of them; elsewhere every floating-point operation does. ``exponentials`` are those
    of attention, one for each score.
    """

    flops: int
    executed: int
    weight_bytes: int
    nbytes: int
    exponentials: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.executed + other.executed,
            self.weight_bytes + other.weight_bytes,
            self.nbytes + other.nbytes,
            self.exponentials + other.exponentials,
        )

    def __mul__(self, times: int) -> Work:
        """The work of as many runs."""
        return Work(*(amount * times for amount in astuple(self)))

    @property
    def intensity(self) -> float:
        """Executed floating-point operations per byte."""
        return self.executed / self.nbytes if self.nbytes else 0.0


NO_WORK = Work(0, 0, 0, 0)


def op_work(op: Op, algorithm: str = "") -> Work:
    """The work of an operation; ``algorithm`` is "winograd2" or "winograd4" for a convolution by Winograd's
    method, whose filters are larger and whose products are fewer, and so it is with "strassen" for a linear
    layer."""
    winograd = algorithm.startswith(_WINOGRAD)
    form = winograd_form(op, int(algorithm.removeprefix(_WINOGRAD))) if winograd else DIRECT
    flops = _products(op)
    operands = list(dict.fromkeys(op.operands()))
    sizes = {tensor: _bytes(op, tensor, form) for tensor in operands}
    weights = sum(size for tensor, size in sizes.items() if tensor.lifetime is Lifetime.PROCESS)
    executed = _winograd_products(op, form) if winograd else flops
    if algorithm == STRASSEN:
        more = _operand(op, 1).nbytes * 3 // 4
        executed, weights = flops * 7 // 8, weights + more
        sizes[_operand(op, 1)] += more
    return Work(flops, executed, weights, op.output.nbytes + sum(sizes.values()), _exponentials(op))


def _exponentials(op: Op) -> int:
    if op.kind != "attention":
        return 0
    return int(op.output.shape[0] * _operand(op, 1).shape[0] * op.attrs["heads"])


def _products(op: Op) -> int:
    if op.kind in ("linear", "conv2d"):
        return 2 * op.output.size * math.prod(_operand(op, 1).shape[1:])
    if op.kind == "attention":
        return 4 * op.output.size * _operand(op, 1).shape[0]
    return op_cost(op).flops


def _winograd_products(op: Op, form: Form) -> int:
    """Each tile of outputs takes one product per transformed pixel, input channel and filter."""
    height, width, filters = op.output.shape
    channels = _operand(op, 1).shape[-1]
    return 2 * form.tiles(height, width) * form.products * channels * filters


def _bytes(op: Op, tensor: Tensor, form: Form) -> int:
    if op.kind == "embedding" and tensor is op.inputs[0]:
        return op.output.nbytes  # only the rows asked for are read
    if op.kind == "conv2d" and tensor is op.inputs[0]:
        return _pixels_read(op) * tensor.shape[-1] * tensor.dtype.itemsize
    if tensor is not op.inputs[min(1, len(op.inputs) - 1)] or op.kind not in ("linear", "conv2d"):
        return tensor.nbytes
    int8 = precision_of(op.attrs) == INT8
    if not form.side:
        return tensor.size if int8 else tensor.nbytes
    item = _INT8_WINOGRAD_BYTES if int8 else tensor.dtype.itemsize
    return item * tensor.size * form.products // form.kernel**2


def _pixels_read(op: Op) -> int:
    """A kernel smaller than its stride leaves pixels out."""
    image, weight = _operand(op, 0), _operand(op, 1)
    window = Window.of(op.attrs)
    if window.dilation > 1:
        return math.prod(image.shape[:2])
    sizes = zip(image.shape[:2], op.output.shape[:2], weight.shape[1:3], window.stride, strict=True)
    return math.prod(
        min(size, out * min(taps, stride) + max(0, taps - stride)) for size, out, taps, stride in sizes
    )


def _operand(op: Op, index: int) -> Tensor:
    tensor = op.inputs[index]
    assert tensor is not None
    return tensor
