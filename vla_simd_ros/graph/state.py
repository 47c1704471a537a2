"""State: keys and values that programs append to and read, which outlive the runs of all of them.

A graph names a state by a tensor, and every operation that appends to it gives the tensor of what it is
from then on: the versions form a chain, in the order in which programs of shorter and shorter lifetimes
append. All versions are one memory. A row is what was appended at its position last; what is taken back is
overwritten by what is appended there next, and is not read before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Array, KeyValueState, Op, Tensor

APPEND = "append"
"""The operation that makes a new version of a state."""


@dataclass(frozen=True, eq=False)
class StateUse:
    """A state in one program: the version that it begins with, and the one that it leaves."""

    state: KeyValueState
    before: Tensor
    after: Tensor


def versions(states: Mapping[Tensor, KeyValueState], ops: Iterable[Op]) -> dict[Tensor, KeyValueState]:
    """The state that each tensor is a version of.

    Raises GraphError where a version is appended to twice, or read after that: its rows are others then.
    """
    known = dict(states)
    replaced: dict[Tensor, Op] = {}
    for op in ops:
        for tensor in op.operands():
            if tensor in replaced:
                raise GraphError(
                    f"{op.kind} '{op.output.name}': '{tensor.name}' has become "
                    f"'{replaced[tensor].output.name}', expected that to be read"
                )
        if op.kind == APPEND:
            source = op.inputs[0]
            if source is None or source not in known:
                name = "nothing" if source is None else f"'{source.name}'"
                raise GraphError(f"{APPEND} '{op.output.name}': {name} is no state")
            known[op.output] = known[source]
            replaced[source] = op
    return known


def uses(ops: Iterable[Op], known: Mapping[Tensor, KeyValueState]) -> tuple[StateUse, ...]:
    """What the operations of one program do with states, of which ``known`` has the versions."""
    found: dict[KeyValueState, StateUse] = {}
    for op in ops:
        for tensor in (*op.operands(), op.output):
            if tensor not in known:
                continue
            first = found.get(known[tensor])
            before = tensor if first is None else first.before
            found[known[tensor]] = StateUse(known[tensor], before, tensor)
    return tuple(found.values())


def check_range(what: str, numbers: Iterable[int], rows: int, of: str) -> None:
    """Raise IndexError unless all ``numbers`` are rows of something that has so many."""
    for place, number in enumerate(numbers):
        if not 0 <= number < rows:
            raise IndexError(f"{what} {number} at place {place} is outside the {of} of {rows} rows")


def check_appended(positions: Sequence[int] | Array, rows: int) -> None:
    """Raise IndexError unless ``positions`` rise within a state of ``rows``, as those appended at must."""
    check_range("position", positions, rows, "state")
    for place, (before, position) in enumerate(pairwise(positions), start=1):
        if position <= before:
            raise IndexError(f"position {position} at place {place} follows {before}, expected a larger one")
