"""The same programs in PyTorch: for cross-checks, for CUDA devices, and as the way to ONNX.

Inside a module images are [1, C, H, W], as PyTorch's convolutions want them; everything that goes in and
comes out has the graph's own layout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F

from vla_simd_ros.executors.base import Cancelled, Executable, InputError, Late, check_inputs, check_order
from vla_simd_ros.executors.identity_cache import IdentityCache
from vla_simd_ros.executors.torch_device import CPU, Delivery, Device, Work, make_device
from vla_simd_ros.executors.torch_int8 import Int8Weight, int8_conv2d, int8_linear, int8_weight
from vla_simd_ros.graph.images import RESAMPLE_BITS
from vla_simd_ros.graph.int8 import INT8, precision_of
from vla_simd_ros.graph.ir import Array, DType, KeyValueState, LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy, Program
from vla_simd_ros.graph.shapes import is_vector
from vla_simd_ros.graph.state import APPEND, check_appended, check_range
from vla_simd_ros.graph.window import Window

_IMAGE_RANK = 3
_DTYPES = {DType.U8: torch.uint8, DType.I32: torch.int32}

States = WeakKeyDictionary[KeyValueState, torch.Tensor]
"""The rows of every state, shared by all that an executor loaded."""


class TorchExecutor:
    """Runs compiled policies in PyTorch, in ``dtype``, on ``device`` (cpu, or a CUDA device as PyTorch calls
    it). On the CPU on ``threads`` threads (0: its default).

    PyTorch has one thread count for the whole process. Raises SettingError for a device that is not there.
    """

    def __init__(
        self, dtype: torch.dtype = torch.float32, threads: int = 0, device: str | Device = CPU
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        self._dtype = dtype
        self._device = make_device(device) if isinstance(device, str) else device
        self._constants = _Constants(self._device, dtype)
        self._cancelled = threading.Event()
        self._states: States = WeakKeyDictionary()

    @property
    def isa(self) -> str:
        """The library, and the device if it is another than the CPU."""
        return f"torch {self._device.name}".rstrip()

    @property
    def threads(self) -> int:
        """Threads that compute on the CPU; 0 on another device."""
        return 0 if self._device.name else int(torch.get_num_threads())

    @property
    def peak_bytes(self) -> int | None:
        """The most memory in use on the device; None on the CPU."""
        return self._device.peak_bytes()

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> TorchExecutable:
        """Make one module of each program. Policies that share constants share them on the device."""
        return TorchExecutable(
            compiled, self._dtype, self._device, self._constants, self._cancelled, self._states
        )

    def cancel(self) -> None:
        """Let no program begin; one that runs cannot be interrupted, but gives no result."""
        self._cancelled.set()

    def resume(self) -> None:
        """Let programs run again."""
        self._cancelled.clear()


class _Constants:
    """Constants on a device, once for all policies that share them."""

    def __init__(self, device: Device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype
        self._placed: dict[bool, IdentityCache[torch.Tensor]] = {
            filters: IdentityCache() for filters in (False, True)
        }
        self._weights: dict[bool, IdentityCache[Int8Weight]] = {
            filters: IdentityCache() for filters in (False, True)
        }

    def place(self, tensor: Tensor, value: LazyArray, filters: bool) -> torch.Tensor:
        """The constant as a module keeps it; ``filters`` of a convolution are rearranged."""
        return self._placed[filters].get(
            (value,), lambda: self._device.place(_constant(tensor, value.array(), filters, self._dtype))
        )

    def place_int8(self, tensor: Tensor, value: LazyArray, filters: bool) -> Int8Weight:
        """The integers of a weight of int8 products, and their scales."""

        def make() -> Int8Weight:
            weight = int8_weight(_constant(tensor, value.array(), filters, torch.float32), self._dtype)
            return Int8Weight(self._device.place(weight.integers), self._device.place(weight.scale))

        return self._weights[filters].get((value,), make)


class TorchExecutable:
    """A compiled policy in PyTorch: inputs and results of its programs are in buffers on the device."""

    def __init__(
        self,
        compiled: CompiledPolicy,
        dtype: torch.dtype,
        device: Device,
        constants: _Constants,
        cancelled: threading.Event,
        states: States,
    ) -> None:
        self._compiled = compiled
        self._cancelled = cancelled
        self._dtype = dtype
        self._states = states
        self._device = device
        self._floating = np.dtype(str(dtype).removeprefix("torch."))
        self._modules = {
            lifetime: ProgramModule(program, compiled.constants, _results(program), dtype, constants)
            for lifetime, program in compiled.programs.items()
        }
        kept = [t for p in compiled.programs.values() for t in (*p.inputs.values(), *p.provides)]
        self._buffers = {tensor: device.place(_buffer(tensor, dtype)) for tensor in dict.fromkeys(kept)}
        self._inlets = {
            tensor: device.inlet(self._buffers[tensor])
            for program in compiled.programs.values()
            for tensor in program.inputs.values()
        }
        self._recorded: dict[Lifetime, Work] = {}
        self._unrecorded: dict[Lifetime, str] = {}
        self._ran: set[Lifetime] = set()

    @property
    def unrecorded(self) -> Mapping[Lifetime, str]:
        """Programs that the device could not record, and why; they are launched operation by operation."""
        return dict(self._unrecorded)

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one program; see :class:`vla_simd_ros.executors.base.Executable`."""
        return self.start(lifetime, inputs).wait()

    def start(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> Late:
        """Run one program; see :class:`vla_simd_ros.executors.base.Starting`."""
        program = self._compiled.programs[lifetime]
        check_inputs(program, inputs, self._floating)
        check_order(program, self._ran)
        _check_positions(program, inputs)
        _check_ids(program, inputs)
        self._ran = {other for other in self._ran if other < lifetime}
        self._check_cancelled()
        with torch.inference_mode():
            for name, tensor in program.inputs.items():
                self._inlets[tensor](inputs[name])
        try:
            self.again(lifetime)
        except IndexError as error:
            raise InputError(f"{lifetime.name}: {error}") from None
        self._check_cancelled()
        self._ran.add(lifetime)
        return self.deliver(lifetime)

    def again(self, lifetime: Lifetime) -> None:
        """Compute a program from the inputs that are there."""
        with torch.inference_mode():
            recorded = self._recorded.get(lifetime)
            if recorded is not None:
                self._device.compute(recorded)
                return
            work = self._work(self._compiled.programs[lifetime])
            self._device.compute(work)
            self._record(lifetime, work)

    def deliver(self, lifetime: Lifetime) -> Late:
        """Send a program's outputs to the host."""
        outputs = self._compiled.programs[lifetime].outputs
        with torch.inference_mode():
            delivery = self._device.deliver([self._buffers[t] for t in outputs.values()])
        return _Outputs(tuple(outputs), delivery)

    def tensor(self, tensor: Tensor) -> Array:
        """The current value of a provided tensor or a constant."""
        if tensor in self._compiled.constants:
            return self._compiled.constants[tensor].array().copy()
        if tensor.lifetime not in self._ran:
            raise KeyError(f"'{tensor.name}': the {tensor.lifetime.name} program has not run")
        return self._device.read(self._buffers[tensor])

    def _work(self, program: Program) -> Work:
        """What a program does from buffers to buffers."""
        module = self._modules[program.lifetime]
        states = [self._state(use.state) for use in program.states]
        given = [*(self._buffers[t] for t in (*program.inputs.values(), *program.uses)), *states]
        kept = [*(self._buffers[t] for t in program.provides), *states]

        def work() -> None:
            for place, value in zip(kept, module(*given), strict=True):
                place.copy_(value)

        return work

    def _record(self, lifetime: Lifetime, work: Work) -> None:
        """Record what has just been launched, to be replayed from now on. It is done in the same thread: what
        libraries set up when a thread first calls them they cannot set up in a recording."""
        if not self._compiled.programs[lifetime].ops or lifetime in self._unrecorded:
            return
        try:
            recorded = self._device.recorded(work)
        except RuntimeError as error:
            self._unrecorded[lifetime] = str(error)
            return
        if recorded is not None:
            self._recorded[lifetime] = recorded

    def _state(self, state: KeyValueState) -> torch.Tensor:
        if state not in self._states:
            self._states[state] = self._device.place(torch.zeros(state.shape, dtype=self._dtype))
        return self._states[state]

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the run was cancelled")


class _Outputs:
    """A program's outputs by name, on their way."""

    def __init__(self, names: tuple[str, ...], delivery: Delivery) -> None:
        self._names = names
        self._delivery = delivery

    def wait(self) -> dict[str, Array]:
        return dict(zip(self._names, self._delivery.wait(), strict=True))


def _buffer(tensor: Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Room for a tensor in the graph's layout."""
    return torch.zeros(tensor.shape, dtype=dtype if tensor.dtype is DType.F32 else _DTYPES[tensor.dtype])


class ProgramModule(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Computes ``results``, tensors of a program, and gives a tuple of them, in ``dtype``.

    Its arguments are the runtime inputs in the order of ``program.inputs``, then ``program.uses``, then the
    states as ``program.states`` begin; arguments and results are in the graph's layout. ``shared`` has the
    constants; without it each module has its own.
    """

    def __init__(
        self,
        program: Program,
        constants: Mapping[Tensor, LazyArray],
        results: Sequence[Tensor],
        dtype: torch.dtype = torch.float32,
        shared: _Constants | None = None,
    ) -> None:
        super().__init__()
        self._dtype = dtype
        states = (use.before for use in program.states)
        self._arguments = (*program.inputs.values(), *program.uses, *states)
        self._ops = program.ops
        self._results = tuple(results)
        self._names: dict[Tensor, str] = {}
        self._int8_names: dict[Tensor, tuple[str, str]] = {}
        filters = {op.inputs[1] for op in program.ops if op.kind == "conv2d"}
        given = [t for t in results if t in constants]
        int8 = _int8_weights(program.ops) - set(given)
        own = shared or _Constants(make_device(CPU), dtype)
        for index, tensor in enumerate(dict.fromkeys((*program.constants, *given))):
            name, value, convolved = f"constant_{index}", constants[tensor], tensor in filters
            if tensor in int8:
                weight = own.place_int8(tensor, value, convolved)
                self._int8_names[tensor] = name, f"{name}_scale"
                self.register_buffer(name, weight.integers)
                self.register_buffer(f"{name}_scale", weight.scale)
            else:
                self._names[tensor] = name
                self.register_buffer(name, own.place(tensor, value, convolved))

    def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The program's results for the arguments."""
        values: dict[Tensor, Any] = {t: getattr(self, name) for t, name in self._names.items()}
        for tensor, names in self._int8_names.items():
            values[tensor] = Int8Weight(*(getattr(self, name) for name in names))
        for tensor, value in zip(self._arguments, arguments, strict=True):
            values[tensor] = _argument(tensor, value, self._dtype)
        for op in self._ops:
            operands = [None if t is None else values[t] for t in op.inputs]
            values[op.output] = _OPERATIONS[op.kind](op, operands, self._dtype)
        return tuple(_from_image(t, values[t]) for t in self._results)


def _int8_weights(ops: Sequence[Op]) -> set[Tensor | None]:
    """The weights that int8 products alone read."""
    read_so: set[Tensor | None] = set()
    otherwise: set[Tensor | None] = set()
    for op in ops:
        for place, tensor in enumerate(op.inputs):
            int8 = place == 1 and op.kind in ("linear", "conv2d") and precision_of(op.attrs) == INT8
            (read_so if int8 else otherwise).add(tensor)
    return read_so - otherwise


def _results(program: Program) -> tuple[Tensor, ...]:
    """What a program must give: what it provides, and the states as it leaves them."""
    return (*program.provides, *(use.after for use in program.states))


def _check_positions(program: Program, inputs: Mapping[str, Array]) -> None:
    """Raise InputError for positions at which nothing can be appended: a module takes some for others."""
    given = {tensor: inputs[name] for name, tensor in program.inputs.items()}
    for op in program.ops:
        if op.kind == APPEND and op.inputs[3] in given:
            try:
                check_appended(given[op.inputs[3]], op.output.shape[0])
            except IndexError as error:
                raise InputError(f"{program.lifetime.name}: {APPEND} '{op.output.name}': {error}") from None


def _check_ids(program: Program, inputs: Mapping[str, Array]) -> None:
    """Raise InputError for ids outside their table, which end a CUDA device's life for this process."""
    given = {tensor: inputs[name] for name, tensor in program.inputs.items()}
    for op in program.ops:
        if op.kind == "embedding" and op.inputs[1] in given:
            table, ids = op.inputs
            assert table is not None and ids is not None
            try:
                check_range("id", given[ids], table.shape[0], "table")
            except IndexError as error:
                raise InputError(f"{program.lifetime.name}: embedding '{op.output.name}': {error}") from None


def _constant(tensor: Tensor, value: Array, filters: bool, dtype: torch.dtype) -> torch.Tensor:
    given = _argument(tensor, torch.tensor(value), dtype)
    # Without strides of another order, which some file formats misread.
    return (given.permute(0, 3, 1, 2) if filters else given).contiguous()


def _argument(tensor: Tensor, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a module was given for ``tensor``, as it is kept inside."""
    if tensor.dtype is not DType.F32:
        return value
    return _to_image(value.to(dtype)) if _is_image(tensor) else value.to(dtype)


def _to_image(value: torch.Tensor) -> torch.Tensor:
    return value.permute(2, 0, 1).unsqueeze(0)


def _from_image(tensor: Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value in the graph's layout, if it is kept as an image."""
    if not _is_image(tensor):
        return value
    return value.squeeze(0).permute(1, 2, 0).contiguous()


def _is_image(tensor: Tensor | None) -> bool:
    return tensor is not None and len(tensor.shape) == _IMAGE_RANK and tensor.dtype is DType.F32


def _channels(vector: torch.Tensor, like: Tensor | None) -> torch.Tensor:
    """A vector over the last axis of ``like``, shaped to be broadcast over it."""
    return vector.reshape(1, -1, 1, 1) if _is_image(like) else vector.reshape(-1)


def _normalize_image(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, offset, divisor = inputs
    scaled = _to_image(x).to(dtype) / 255
    return (scaled - _channels(offset, op.output)) / _channels(divisor, op.output)


def _embedding(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    table, ids = inputs
    return F.embedding(ids.long(), table)


def _linear(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, weight, bias, *rest = inputs
    if precision_of(op.attrs) == INT8:
        y = int8_linear(x, _int8(weight, dtype))
        y = y if bias is None else y + bias
    else:
        y = F.linear(x, weight, bias)
    return _epilogue(op, y, rest)


def _conv2d(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, weight, bias, *rest = inputs
    window = Window.of(op.attrs)
    ((top, bottom), (left, right)) = window.padding
    walk: dict[str, Any] = {"stride": window.stride, "padding": (top, left), "dilation": window.dilation}
    if (top, left) != (bottom, right):
        x, walk["padding"] = F.pad(x, (left, right, top, bottom)), 0
    if precision_of(op.attrs) == INT8:
        y = int8_conv2d(x, _int8(weight, dtype), **walk)
        y = y if bias is None else y + _channels(bias, op.output)
    else:
        y = F.conv2d(x, weight, bias, **walk)
    return _epilogue(op, y, rest)


def _int8(weight: torch.Tensor | Int8Weight, dtype: torch.dtype) -> Int8Weight:
    """The weight of an int8 product; one that other operations read too is quantized where it is used."""
    return weight if isinstance(weight, Int8Weight) else int8_weight(weight, dtype)


def _epilogue(op: Op, y: torch.Tensor, operands: Sequence[Any]) -> torch.Tensor:
    residual, gamma, beta = operands
    if residual is not None:
        y = y + residual
    y = _activated(op, y)
    return y if gamma is None else (1 + _channels(gamma, op.output)) * y + _channels(beta, op.output)


def _activated(op: Op, y: torch.Tensor) -> torch.Tensor:
    activation = op.attrs["activation"]
    return y if activation == "none" else _ACTIVATIONS[activation](y)


def _film(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, gamma, beta = inputs
    return (1 + _channels(gamma, op.output)) * x + _channels(beta, op.output)


def _max_pool2d(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return F.max_pool2d(inputs[0], op.attrs["kernel"], op.attrs["stride"], op.attrs["padding"])


def _binary(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    a, b = inputs
    other = op.inputs[1]
    assert other is not None
    if other.shape != op.output.shape and is_vector(other, op.output.shape[-1]):
        b = _channels(b, op.output)
    elif other.size == 1:
        b = b.reshape(())
    return _BINARY[op.attrs["op"]](a, b)


def _activation(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return _ACTIVATIONS[op.attrs["fn"]](inputs[0])


def _layer_norm(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, weight, bias = inputs
    return F.layer_norm(x, weight.shape, weight, bias, op.attrs["eps"])


def _rms_norm(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, weight = inputs
    return F.rms_norm(x, weight.shape, weight, op.attrs["eps"])


def _group_norm(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, weight, bias = inputs
    channels_first = x if _is_image(op.output) else x.T.unsqueeze(0)
    y = _activated(op, F.group_norm(channels_first, op.attrs["groups"], weight, bias, op.attrs["eps"]))
    return y if _is_image(op.output) else y.squeeze(0).T


def _softmax(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return inputs[0].softmax(dim=1)


def _rotary(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    x, cos, sin = inputs
    pair = -1 if op.attrs["interleaved"] else 2
    a, b = x.unflatten(-1, (op.attrs["heads"], *((-1, 2) if pair == -1 else (2, -1)))).unbind(dim=pair)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=pair).flatten(1)


def _attention(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    q, k, v, bias = inputs
    if bias is not None:
        assert op.inputs[3] is not None
        bias = _from_image(op.inputs[3], bias)
    return _attend(op, q, k, v, bias)


def _attend(
    op: Op, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """``bias`` is [heads, queries, keys], [1, queries, keys] or [queries, keys]."""
    heads, kv_heads = op.attrs["heads"], op.attrs["kv_heads"]
    # [1, heads, rows, head width], which is what the fused kernels take.
    q = q.unflatten(-1, (heads, -1)).transpose(0, 1).unsqueeze(0)
    k, v = (t.unflatten(-1, (kv_heads, -1)).transpose(0, 1).unsqueeze(0) for t in (k, v))
    if heads != kv_heads:
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    bias = None if bias is None else bias.unsqueeze(0)
    y = F.scaled_dot_product_attention(q, k, v, bias, scale=op.attrs["scale"])
    return y.squeeze(0).transpose(0, 1).flatten(1)


def _append(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    state, keys, values, positions = inputs
    return state.index_copy(0, positions.long(), torch.cat((keys, values), dim=1))


def _cached_attention(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    q, state, positions = inputs
    # A key beyond a row's position is hidden by -inf, and its value, which may be anything, is taken as zero.
    seen = torch.arange(state.shape[0], device=positions.device) <= positions.unsqueeze(1)
    state = torch.where(seen.any(dim=0).unsqueeze(1), state, 0)
    keys, values = state.chunk(2, dim=1)
    bias = torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, -torch.inf)
    return _attend(op, q, keys, values, bias)


def _mean_rows(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return inputs[0].mean(dim=0, keepdim=True)


def _concat(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return torch.cat(list(inputs), dim=_axis(op))


def _slice(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    return inputs[0].narrow(_axis(op), op.attrs["start"], op.attrs["stop"] - op.attrs["start"])


def _axis(op: Op) -> int:
    """The axis of the operation in PyTorch's layout."""
    axis = int(op.attrs["axis"])
    return (2, 3, 1)[axis] if _is_image(op.output) else axis


def _reshape(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    source = op.inputs[0]
    assert source is not None
    y = _from_image(source, inputs[0]).reshape(op.attrs["shape"])
    return _to_image(y) if _is_image(op.output) else y


def _transpose(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    source = op.inputs[0]
    assert source is not None
    y = _from_image(source, inputs[0]).permute(op.attrs["axes"]).contiguous()
    return _to_image(y) if _is_image(op.output) else y


def _resize(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    size = op.attrs["height"], op.attrs["width"]
    return F.interpolate(inputs[0], size=size, mode="bilinear", align_corners=False)


def _resample(op: Op, inputs: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """On an image that is kept as it is given; sums of integers in double precision are exact."""
    x, first, weights = inputs
    axis = op.attrs["axis"]
    pixels = x.double() if axis == 0 else x.double().transpose(0, 1)
    taps = torch.arange(weights.shape[1], device=weights.device)
    neighbours = pixels[(first[:, None] + taps).long()]
    sums = (neighbours * weights.double()[:, :, None, None]).sum(dim=1)
    result = torch.floor(sums / 2**RESAMPLE_BITS + 0.5).clamp(0, 255).to(torch.uint8)
    return result if axis == 0 else result.transpose(0, 1).contiguous()


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
}
_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "min": torch.minimum,
    "max": torch.maximum,
}
_OPERATIONS: dict[str, Callable[[Op, Sequence[Any], torch.dtype], torch.Tensor]] = {
    "normalize_image": _normalize_image,
    "embedding": _embedding,
    "linear": _linear,
    "conv2d": _conv2d,
    "film": _film,
    "max_pool2d": _max_pool2d,
    "binary": _binary,
    "activation": _activation,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "softmax": _softmax,
    "rotary": _rotary,
    "attention": _attention,
    "append": _append,
    "cached_attention": _cached_attention,
    "mean_rows": _mean_rows,
    "concat": _concat,
    "slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "resize": _resize,
    "resample": _resample,
}
