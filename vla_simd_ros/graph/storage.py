"""Where tensors live: which of them own memory, and which lie inside another's.

Slices and reshapes are views of what they are taken from, and the parts of a concatenation are computed
straight into the whole, wherever the result can be described as rows of one length at one distance. What
cannot be is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vla_simd_ros.graph.branches import Branch, find_branches
from vla_simd_ros.graph.ir import DType, KeyValueState, Op, Tensor
from vla_simd_ros.graph.memory import ALIGNMENT, Buffer
from vla_simd_ros.graph.programs import Program
from vla_simd_ros.graph.state import APPEND, versions

VIEWS = ("slice", "reshape")

_NO_OWNERS = (*VIEWS, APPEND)

# Operations that can write, or read, rows with gaps between them; all others need them without.
_ANY_ROWS = (
    *("linear", "attention", "layer_norm", "rms_norm", "group_norm", "softmax", "rotary", "transpose"),
    *("binary", "activation", "film", "embedding", "concat", "append", "cached_attention"),
)
_WRITE_ANY_ROWS = frozenset((*_ANY_ROWS, "conv2d", "resize"))
_READ_ANY_ROWS = frozenset((*_ANY_ROWS, "mean_rows", "conv2d"))
# But for these operands: the image, and what is added to scores.
_WITHOUT_GAPS = {"conv2d": (0,), "attention": (3,)}

# A head's queries, keys and values are a few columns of every row. Where rows begin a multiple of this many
# bytes apart, those of all rows compete for the same few places of a cache, which holds fewer than it could.
_CROWDED_BYTES = 1024
_LEAST_CROWDED_ROWS = 16


@dataclass(frozen=True)
class Place:
    """A tensor as ``rows`` x ``cols`` elements, rows ``ld`` apart, beginning ``offset`` into ``root``.

    The last axis of the tensor forms the columns and all others together the rows; a vector is one row.
    """

    root: Tensor
    offset: int
    rows: int
    cols: int
    ld: int

    @property
    def nbytes(self) -> int:
        """What its rows take, with the gaps between them and one after the last."""
        return self.rows * self.ld * self.root.dtype.itemsize

    @property
    def dense(self) -> bool:
        """Whether the elements follow each other without gaps."""
        return self.rows == 1 or self.ld == self.cols

    def part(self, row: int, rows: int, col: int, cols: int) -> Place:
        """``rows`` from ``row`` on, and of these ``cols`` columns from ``col`` on."""
        return Place(self.root, self.offset + row * self.ld + col, rows, cols, self.ld)

    def same(self, other: Place) -> bool:
        """Whether both are the same elements in the same order."""
        pitch = self.ld == other.ld or self.rows == 1
        mine, others = ((p.root, p.offset, p.rows, p.cols) for p in (self, other))
        return mine == others and pitch


@dataclass(frozen=True)
class Copy:
    """The elements of ``source`` go to ``target``, which has as many rows and columns."""

    source: Place
    target: Place


@dataclass
class Storage:
    """The places of all tensors of some programs, and the memory of those that own some.

    ``copies`` are what remains to be done for a view or concatenation, by its result; there is an entry
    only where something must be moved. ``states`` has the tensors that are versions of a state: their memory
    is the executor's, and they have no place here.
    """

    places: dict[Tensor, Place] = field(default_factory=dict)
    buffers: dict[Tensor, Buffer] = field(default_factory=dict)
    copies: dict[Tensor, list[Copy]] = field(default_factory=dict)
    states: dict[Tensor, KeyValueState] = field(default_factory=dict)


def matrix_shape(tensor: Tensor) -> tuple[int, int]:
    """Rows and columns of a tensor: its last axis, and all others together."""
    cols = tensor.shape[-1] if tensor.shape else 1
    return tensor.size // cols, cols


def plan_storage(programs: Sequence[Program], branching: bool = False) -> Storage:
    """Places, buffers and copies for the programs of one policy, given with longer-lived ones first.

    What a program provides is persistent. With ``branching``, branches of a program (see
    :func:`vla_simd_ros.graph.branches.find_branches`) may run at the same time.
    """
    begun = {use.before: use.state for program in programs for use in program.states}
    storage = Storage(states=versions(begun, (op for program in programs for op in program.ops)))
    kept = {tensor for program in programs for tensor in program.provides}
    use = _Use(op for program in programs for op in program.ops)
    for program in programs:
        _place(program, kept, use, storage)
    persistent = {storage.places[tensor].root for tensor in kept}
    for number, program in enumerate(programs):
        constants = {storage.places[tensor].root for tensor in program.constants}
        branches = find_branches(program) if branching else [None] * len(program.ops)
        for root, positions in _touched(program, storage).items():
            if root not in constants and root not in storage.buffers:
                first, last, branch = _in_use(positions, branches)
                storage.buffers[root] = Buffer(
                    root.name, storage.places[root].nbytes, first, last, number, root in persistent, branch
                )
    return storage


def _own_place(tensor: Tensor) -> Place:
    rows, cols = matrix_shape(tensor)
    return Place(tensor, 0, rows, cols, cols)


def _spaced_place(tensor: Tensor) -> Place:
    """A tensor's own memory, with a cache line after every row where rows would crowd without it."""
    rows, cols = matrix_shape(tensor)
    crowded = rows >= _LEAST_CROWDED_ROWS and cols * tensor.dtype.itemsize % _CROWDED_BYTES == 0
    return Place(tensor, 0, rows, cols, cols + ALIGNMENT // tensor.dtype.itemsize if crowded else cols)


def _place(program: Program, kept: set[Tensor], use: _Use, storage: Storage) -> None:
    places = storage.places
    places.update((tensor, _own_place(tensor)) for tensor in program.constants)
    owners = [*program.inputs.values(), *(op.output for op in program.ops if op.kind not in _NO_OWNERS)]
    places.update(_joined_parts(program, [tensor for tensor in owners if tensor not in kept], use))
    for tensor in owners:
        spaced = tensor not in kept and use.may_be_spaced(tensor)
        places.setdefault(tensor, _spaced_place(tensor) if spaced else _own_place(tensor))
    for op in program.ops:
        if op.kind in VIEWS:
            _place_view(op, use, storage)
    for op in program.ops:
        if op.kind == "concat":
            copies = [copy for copy in _gather(op, storage) if not copy.source.same(copy.target)]
            if copies:
                storage.copies[op.output] = copies


def _joined_parts(program: Program, candidates: Sequence[Tensor], use: _Use) -> dict[Tensor, Place]:
    """Places inside a concatenation for those candidates that are part of one and can be made there."""
    free = {tensor for tensor in candidates if tensor.dtype is DType.F32}
    joined: dict[Tensor, Place] = {}
    for op in reversed(program.ops):  # a whole that is itself part of another comes after that other
        if op.kind != "concat" or _is_middle_axis(op.output, op.attrs["axis"]):
            continue
        whole = joined.get(op.output, _own_place(op.output))
        for part, place in _parts(op, whole):
            base = use.unshaped(part)
            fits = base in free and base not in joined and matrix_shape(base) == matrix_shape(part)
            if fits and (place.dense or use.copes_with_gaps(base)):
                joined[base] = place
    return joined


def _parts(op: Op, whole: Place) -> Iterator[tuple[Tensor, Place]]:
    """The parts of a concatenation along the first or last axis, each with its place in the whole."""
    axis = op.attrs["axis"]
    row = col = 0
    for part in op.operands():
        rows, cols = matrix_shape(part)
        yield part, whole.part(row, rows, col, cols)
        if axis == len(part.shape) - 1:
            col += cols
        else:
            row += rows


def _is_middle_axis(tensor: Tensor, axis: int) -> bool:
    """Whether a step along ``axis`` is neither one of whole rows nor one within a row."""
    return axis != len(tensor.shape) - 1 and math.prod(tensor.shape[:axis]) != 1


class _Use:
    """Who makes and who reads tensors."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._maker: dict[Tensor, Op] = {}
        self._readers: dict[Tensor, list[Op]] = {}
        for op in ops:
            self._maker[op.output] = op
            for tensor in dict.fromkeys(op.operands()):
                self._readers.setdefault(tensor, []).append(op)

    def unshaped(self, tensor: Tensor) -> Tensor:
        """What ``tensor`` is a reshape of."""
        maker = self._maker.get(tensor)
        while maker is not None and maker.kind == "reshape":
            (tensor,) = maker.operands()
            maker = self._maker.get(tensor)
        return tensor

    def copes_with_gaps(self, tensor: Tensor) -> bool:
        """Whether the maker and all readers of ``tensor`` can do with gaps between its rows."""
        maker = self._maker.get(tensor)
        if maker is not None and maker.kind not in _WRITE_ANY_ROWS:
            return False
        if maker is not None and maker.kind == "concat" and _is_middle_axis(tensor, maker.attrs["axis"]):
            return False
        return self.readers_cope(tensor)

    def may_be_spaced(self, tensor: Tensor) -> bool:
        """Whether attention reads ``tensor``, and nothing needs its rows without gaps."""
        maker = self._maker.get(tensor)
        joins = maker is not None and maker.kind == "concat"  # its parts are placed for a whole without gaps
        return not joins and self._attended(tensor) and self.copes_with_gaps(tensor)

    def _attended(self, tensor: Tensor) -> bool:
        return any(
            self._attended(reader.output)
            if reader.kind in VIEWS
            else reader.kind == "attention" and tensor in reader.inputs[:3]
            for reader in self._readers.get(tensor, ())
        )

    def readers_cope(self, tensor: Tensor) -> bool:
        """Whether all readers of ``tensor`` can do with gaps between its rows."""
        return all(self._reader_copes(tensor, reader) for reader in self._readers.get(tensor, ()))

    def _reader_copes(self, tensor: Tensor, reader: Op) -> bool:
        if reader.kind == "reshape" and reader.output.shape[-1:] != tensor.shape[-1:]:
            return False
        if reader.kind in ("slice", "concat") and _is_middle_axis(tensor, reader.attrs["axis"]):
            return False
        if reader.kind in VIEWS:
            return self.readers_cope(reader.output)
        if tensor in (reader.inputs[index] for index in _WITHOUT_GAPS.get(reader.kind, ())):
            return False
        return reader.kind in _READ_ANY_ROWS


def _place_view(op: Op, use: _Use, storage: Storage) -> None:
    (source,) = op.operands()
    place = storage.places[source]
    view = _reshaped(place, op.output) if op.kind == "reshape" else _sliced(place, source, op)
    if view is None:
        view = _own_place(op.output)
        move = _dense_copy(place, view) if op.kind == "reshape" else _middle_slice(op, source, place, view)
        storage.copies[op.output] = [move]
    elif not view.dense and not use.readers_cope(op.output):
        gaps, view = view, _own_place(op.output)
        storage.copies[op.output] = [Copy(gaps, view)]
    storage.places[op.output] = view


def _reshaped(place: Place, result: Tensor) -> Place | None:
    rows, cols = matrix_shape(result)
    if place.dense:
        return Place(place.root, place.offset, rows, cols, cols)
    return place if cols == place.cols else None


def _sliced(place: Place, source: Tensor, op: Op) -> Place | None:
    axis, start, stop = op.attrs["axis"], op.attrs["start"], op.attrs["stop"]
    if axis == len(source.shape) - 1:
        return place.part(0, place.rows, start, stop - start)
    if _is_middle_axis(source, axis):
        return None
    inner = math.prod(source.shape[axis + 1 : -1])
    return place.part(start * inner, (stop - start) * inner, 0, place.cols)


def _dense_copy(place: Place, target: Place) -> Copy:
    return Copy(place, Place(target.root, target.offset, place.rows, place.cols, place.cols))


def _middle_slice(op: Op, source: Tensor, place: Place, target: Place) -> Copy:
    assert place.dense  # or it would have been copied
    axis, start = op.attrs["axis"], op.attrs["start"]
    outer, pitch = math.prod(source.shape[:axis]), math.prod(source.shape[axis:])
    inner = math.prod(source.shape[axis + 1 :])
    cols = (op.attrs["stop"] - start) * inner
    return Copy(
        Place(place.root, place.offset + start * inner, outer, cols, pitch),
        Place(target.root, target.offset, outer, cols, cols),
    )


def _gather(op: Op, storage: Storage) -> Iterator[Copy]:
    """What moves each part of a concatenation to its place; a part made there has its source for a target."""
    whole = storage.places[op.output]
    axis = op.attrs["axis"]
    if not _is_middle_axis(op.output, axis):
        yield from (Copy(storage.places[part], place) for part, place in _parts(op, whole))
        return
    outer, pitch = math.prod(op.output.shape[:axis]), math.prod(op.output.shape[axis:])
    start = 0
    for part in op.operands():
        place = storage.places[part]
        assert place.dense
        cols = math.prod(part.shape[axis:])
        source = Place(place.root, place.offset, outer, cols, cols)
        yield Copy(source, Place(whole.root, whole.offset + start, outer, cols, pitch))
        start += cols


def _touched(program: Program, storage: Storage) -> dict[Tensor, list[int]]:
    """The operations that touch each tensor which owns memory, in order; inputs are set before the first."""
    touched: dict[Tensor, list[int]] = {}
    for tensor in program.inputs.values():
        touched.setdefault(storage.places[tensor].root, []).append(-1)
    for position, op in enumerate(program.ops):
        for tensor in (op.output, *op.operands()):
            if tensor not in storage.states:
                touched.setdefault(storage.places[tensor].root, []).append(position)
    return touched


def _in_use(positions: Sequence[int], branches: Sequence[Branch | None]) -> tuple[int, int, Branch | None]:
    """First and last operation during which a buffer touched at ``positions`` is in use, and the branch whose
    alone it is. One that is not a single branch's is in use for the whole of the sections it is touched in.
    """
    users = {branches[position] if position >= 0 else None for position in positions}
    first, last = positions[0], positions[-1]
    if len(users) == 1:
        return first, last, users.pop()
    while first > 0 and _same_section(branches[first - 1], branches[first]):
        first -= 1
    while 0 <= last < len(branches) - 1 and _same_section(branches[last], branches[last + 1]):
        last += 1
    return first, last, None


def _same_section(a: Branch | None, b: Branch | None) -> bool:
    return a is not None and b is not None and a[0] == b[0]
