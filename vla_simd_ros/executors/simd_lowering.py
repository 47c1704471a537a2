"""From the operations of a program to the records that the engine runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import vla_simd_ros._engine as _engine
from vla_simd_ros.executors.convolution import ConvolutionChoice, has_patches, int8_by_winograd
from vla_simd_ros.executors.linear import by_strassen
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.executors.simd_constants import EngineConstants
from vla_simd_ros.graph.branches import find_branches
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.int8 import INT8, precision_of
from vla_simd_ros.graph.ir import LazyArray, Op, Tensor
from vla_simd_ros.graph.programs import Program
from vla_simd_ros.graph.storage import VIEWS, Place, Storage, matrix_shape
from vla_simd_ros.graph.window import Window

_READS_BLOCKS = {"linear": 1, "embedding": 0}
"""Which operand of an operation may be in blocks."""


@dataclass(frozen=True)
class Lowered:
    """A program of the engine. ``sources`` has the operation that each record computes, or a part of, and
    ``kernels`` the name of what computes it, see :func:`kernel_name`."""

    program: _engine.Program
    sources: tuple[Op, ...]
    kernels: tuple[str, ...]


def kernel_name(
    engine: _engine.Engine,
    op: Op,
    convolutions: ConvolutionChoice,
    settings: EngineSettings,
    weights: _engine.PackedWeights | None = None,
) -> str:
    """Algorithm and instruction set, with the register tile of matrix products; "view" for operations that
    compute nothing. ``weights`` that are kept in bfloat16 are not for Strassen's method."""
    if op.kind == "concat" or op.kind in VIEWS:
        return "view"
    if precision_of(op.attrs) == INT8:
        rows, cols = engine.int8_tile
        by_winograd = int8_by_winograd(op, settings.convolution, engine.int8_winograd)
        return f"{'winograd4' if by_winograd else op.kind}_int8_{engine.int8_isa}_{rows}x{cols}"
    kernel = convolutions.form(op).name if op.kind == "conv2d" else op.kind
    if op.kind == "attention" and settings.attention == "materialized":
        return f"attention_materialized_{engine.isa}"
    if _reads_rows(engine, op, settings.panel_rows):
        return f"linear_rows_{engine.isa}"
    if by_strassen(op, settings.linear, engine.strassen_fits) and (weights is None or weights.strassen):
        kernel = "strassen"
    if op.kind not in ("linear", "conv2d"):
        return f"{kernel}_{engine.isa}"
    rows, cols = engine.tile
    return f"{kernel}_{engine.isa}_{rows}x{cols}"


def _reads_rows(engine: _engine.Engine, op: Op, panel_rows: int) -> bool:
    """Whether ``op`` is a linear layer whose weights are kept row by row: one of few rows of activations, or
    of so few columns that they would leave half of a register tile empty."""
    if op.kind != "linear" or precision_of(op.attrs) == INT8:
        return False
    rows, cols = matrix_shape(op.output)
    return rows < panel_rows or 2 * cols <= engine.tile[1]


class Lowering:
    """Lowers the programs of one policy, whose tensors are placed in one arena.

    ``offsets`` are the byte offsets of the tensors that own memory; ``values`` the policy's constants;
    ``settings`` those of the engine.
    """

    def __init__(
        self,
        engine: _engine.Engine,
        arena: _engine.Arena,
        constants: EngineConstants,
        convolutions: ConvolutionChoice,
        settings: EngineSettings,
        storage: Storage,
        offsets: Mapping[Tensor, int],
        values: Mapping[Tensor, LazyArray],
    ) -> None:
        self._engine = engine
        self._arena = arena
        self._constants = constants
        self._convolutions = convolutions
        self.settings = settings
        self._storage = storage
        self._offsets = offsets
        self._values = values

    def lower(self, program: Program) -> Lowered:
        """Raises GraphError, naming the operation, for what this executor cannot compute."""
        builder = _engine.ProgramBuilder(self._engine, self._arena)
        sources: list[Op] = []
        branches = find_branches(program) if self._engine.branching else [None] * len(program.ops)
        for op, branch in zip(program.ops, branches, strict=True):
            builder.set_branch(-1 if branch is None else branch[1])
            if op.kind == "concat" or op.kind in VIEWS:
                for copy in self._storage.copies.get(op.output, ()):
                    builder.copy(op.output.name, self._view(copy.source), self._view(copy.target))
                    sources.append(op)
                continue
            emit = _EMITTERS.get(op.kind)
            if emit is None:
                raise GraphError(f"{op.kind} '{op.output.name}': the engine has no kernel for it")
            emit(self, builder, op)
            sources.append(op)
        return Lowered(builder.build(), tuple(sources), tuple(map(self._kernel_name, sources)))

    def _kernel_name(self, op: Op) -> str:
        packed = self.weights(op) if op.kind == "linear" else None
        weights = packed if isinstance(packed, _engine.PackedWeights) else None
        name = kernel_name(self._engine, op, self._convolutions, self.settings, weights)
        form = self._block_form(op)
        return name if form is None else f"{op.kind}_{form}_{self._engine.isa}"

    def _block_form(self, op: Op) -> str | None:
        """The format of the blocks that ``op`` computes with, if it does."""
        if op.kind not in _READS_BLOCKS or precision_of(op.attrs) == INT8:
            return None
        tensor = op.inputs[_READS_BLOCKS[op.kind]]
        if tensor is None or tensor not in self._values:
            return None
        return self._constants.block_form(self._values[tensor])

    def view(self, tensor: Tensor) -> _engine.View:
        """Where a tensor is, as rows and columns."""
        return self._view(self._storage.places[tensor])

    def _view(self, place: Place) -> _engine.View:
        root = place.root
        offset = place.offset * root.dtype.itemsize
        constant = None
        if root in self._values:
            constant, start = self._constants.plain(self._values[root])
        else:
            start = self._offsets[root]
        offset += start
        return _engine.View(offset, place.rows, place.cols, place.ld, root.dtype.value, constant)

    def state(self, tensor: Tensor | None) -> _engine.KeyValues:
        """The memory of a version of a state."""
        assert tensor is not None
        return self._constants.key_values(self._storage.states[tensor])

    def optional(self, tensor: Tensor | None) -> _engine.View | None:
        return None if tensor is None else self.view(tensor)

    def constant(self, op: Op, role: str, tensor: Tensor | None) -> LazyArray:
        """The value of an operand that must be known at load."""
        if tensor is None or tensor not in self._values:
            name = "missing" if tensor is None else f"'{tensor.name}' of lifetime {tensor.lifetime.name}"
            raise GraphError(f"{op.kind} '{op.output.name}': {role} is {name}, expected a constant")
        return self._values[tensor]

    def table(self, op: Op) -> _engine.View | _engine.BlockWeights:
        """What an embedding takes rows of."""
        table = op.inputs[0]
        assert table is not None
        if self._block_form(op) is None:
            return self.view(table)
        return self._constants.blocks(self._values[table])

    def weights(self, op: Op) -> _engine.PackedWeights | _engine.Int8Weights | _engine.BlockWeights:
        weight = self.constant(op, "weight", op.inputs[1])
        if self._block_form(op) is not None:
            return self._constants.blocks(weight)
        if precision_of(op.attrs) == INT8:
            try:
                winograd = int8_by_winograd(op, self.settings.convolution, self._engine.int8_winograd)
                return self._constants.int8(weight, _int8_runs(op), winograd)
            except ValueError as error:
                raise GraphError(f"{op.kind} '{op.output.name}': {error}") from None
        if op.kind == "linear":
            row_by_row = _reads_rows(self._engine, op, self.settings.panel_rows)
            strassen = not row_by_row and by_strassen(op, self.settings.linear, self._engine.strassen_fits)
            return self._constants.packed(weight, row_by_row=row_by_row, strassen=strassen)
        return self._constants.packed(weight, self._convolutions.form(op))

    def is_flat(self, op: Op) -> bool:
        """Whether the patches of a convolution are stored before it is computed."""
        return self._convolutions.form(op).flat

    def pixel_table(self, op: Op) -> _engine.View:
        _, offset, divisor = op.inputs
        table = self._constants.pixel_table(
            self.constant(op, "offset", offset), self.constant(op, "divisor", divisor)
        )
        channels = op.output.shape[-1]
        return _engine.View(0, channels, 256, 256, "float32", table)


def _int8_runs(op: Op) -> int:
    """How many runs of adjacent input values an output value is computed from: one for a linear layer, one
    per row of a filter, or per place of it where it is dilated."""
    if op.kind == "linear":
        return 1
    height, width = list(op.operands())[1].shape[1:3]
    return height if op.attrs["dilation"] == 1 else height * width


def _operands(lowering: Lowering, op: Op) -> list[_engine.View]:
    return [lowering.view(tensor) for tensor in op.operands()]


def _epilogue(lowering: Lowering, op: Op) -> dict[str, Any]:
    roles = ("bias", "residual", "gamma", "beta")
    views = {role: lowering.optional(t) for role, t in zip(roles, op.inputs[2:], strict=True)}
    return {**views, "activation": op.attrs["activation"]}


def _linear(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x = op.inputs[0]
    assert x is not None
    out, epilogue = lowering.view(op.output), _epilogue(lowering, op)
    builder.linear(op.output.name, lowering.view(x), lowering.weights(op), out, **epilogue)


def _conv2d(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, weight = op.inputs[:2]
    assert x is not None and weight is not None
    flat = lowering.is_flat(op)
    if flat and not has_patches(op):
        product = lowering.weights(op)
        builder.linear(
            op.output.name, lowering.view(x), product, lowering.view(op.output), **_epilogue(lowering, op)
        )
        return
    emit: Callable[..., None] = builder.conv2d_flat if flat else builder.conv2d
    emit(
        op.output.name,
        x=lowering.view(x),
        in_size=x.shape[:2],
        weights=lowering.weights(op),
        kernel=weight.shape[1:3],
        y=lowering.view(op.output),
        out_size=op.output.shape[:2],
        **Window.of(op.attrs)._asdict(),
        **_epilogue(lowering, op),
    )


def _max_pool2d(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    (x,) = op.operands()
    builder.max_pool2d(
        op.output.name,
        x=lowering.view(x),
        in_size=x.shape[:2],
        y=lowering.view(op.output),
        out_size=op.output.shape[:2],
        **{name: op.attrs[name] for name in ("kernel", "stride", "padding")},
    )


def _attention(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    q, k, v, *_ = _operands(lowering, op)
    bias = lowering.optional(op.inputs[3])
    heads = {name: op.attrs[name] for name in ("heads", "kv_heads", "scale")}
    materialized = lowering.settings.attention == "materialized"
    builder.attention(
        op.output.name, q, k, v, lowering.view(op.output), bias=bias, materialized=materialized, **heads
    )


def _layer_norm(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, weight, bias = _operands(lowering, op)
    builder.layer_norm(op.output.name, x, weight, bias, op.attrs["eps"], lowering.view(op.output))


def _rms_norm(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, weight = _operands(lowering, op)
    builder.rms_norm(op.output.name, x, weight, op.attrs["eps"], lowering.view(op.output))


def _group_norm(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, weight, bias = _operands(lowering, op)
    attrs = op.attrs["groups"], op.attrs["eps"], op.attrs["activation"]
    builder.group_norm(op.output.name, x, weight, bias, *attrs, lowering.view(op.output))


def _softmax(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    (x,) = _operands(lowering, op)
    builder.softmax(op.output.name, x, lowering.view(op.output))


def _rotary(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, cos, sin = _operands(lowering, op)
    heads, interleaved = op.attrs["heads"], op.attrs["interleaved"]
    builder.rotary(op.output.name, x, cos, sin, heads, lowering.view(op.output), interleaved)


def _append(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    state, *rows = op.operands()
    keys, values, positions = (lowering.view(tensor) for tensor in rows)
    builder.append(op.output.name, lowering.state(state), keys, values, positions)


def _cached_attention(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    q, state, positions = op.operands()
    views = lowering.view(q), lowering.state(state), lowering.view(positions), lowering.view(op.output)
    builder.cached_attention(op.output.name, *views, op.attrs["heads"], op.attrs["scale"])


def _transpose(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    (x,) = op.operands()
    shape, axes = x.shape, op.attrs["axes"]
    if len(shape) == 2:
        shape, axes = (1, *shape), (0, *(1 + axis for axis in axes))
    builder.transpose(op.output.name, lowering.view(x), shape, axes, lowering.view(op.output))


def _resize(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    (x,) = op.operands()
    view, out = lowering.view(x), lowering.view(op.output)
    builder.resize(op.output.name, view, x.shape[:2], out, op.output.shape[:2])


def _resample(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, first, weights = op.operands()
    for role, tensor in (("first", first), ("weights", weights)):
        lowering.constant(op, role, tensor)
    views = (lowering.view(tensor) for tensor in (first, weights, op.output))
    builder.resample(op.output.name, lowering.view(x), x.shape[:2], op.attrs["axis"], *views)


def _binary(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    a, b = _operands(lowering, op)
    builder.binary(op.output.name, op.attrs["op"], a, b, lowering.view(op.output))


def _activation(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    (x,) = _operands(lowering, op)
    builder.pointwise(op.output.name, x, lowering.view(op.output), activation=op.attrs["fn"])


def _film(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x, gamma, beta = _operands(lowering, op)
    builder.pointwise(op.output.name, x, lowering.view(op.output), gamma=gamma, beta=beta)


def _mean_rows(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    (x,) = _operands(lowering, op)
    builder.mean_rows(op.output.name, x, lowering.view(op.output))


def _normalize_image(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    x = op.inputs[0]
    assert x is not None
    builder.lookup_u8(op.output.name, lowering.view(x), lowering.pixel_table(op), lowering.view(op.output))


def _embedding(lowering: Lowering, builder: _engine.ProgramBuilder, op: Op) -> None:
    ids = op.inputs[1]
    assert ids is not None
    builder.embedding(op.output.name, lowering.table(op), lowering.view(ids), lowering.view(op.output))


_EMITTERS: dict[str, Callable[[Lowering, _engine.ProgramBuilder, Op], None]] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "attention": _attention,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "softmax": _softmax,
    "rotary": _rotary,
    "append": _append,
    "cached_attention": _cached_attention,
    "transpose": _transpose,
    "resize": _resize,
    "resample": _resample,
    "binary": _binary,
    "activation": _activation,
    "film": _film,
    "mean_rows": _mean_rows,
    "normalize_image": _normalize_image,
    "embedding": _embedding,
}
