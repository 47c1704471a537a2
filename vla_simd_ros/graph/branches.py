"""Parts of a program that do not depend on each other: what is computed of each camera's picture alone."""

from __future__ import annotations

from itertools import groupby

from vla_simd_ros.graph.ir import DType, Tensor
from vla_simd_ros.graph.programs import Program

Branch = tuple[int, int]
"""A section of a program and a branch of it, both counted from 0."""


def find_branches(program: Program) -> list[Branch | None]:
    """The branch that each operation belongs to, None for those that belong to none.

    A section is a stretch of adjacent operations that each depend on one picture, a branch of it those of the
    same one. Nothing in it reads what another branch makes, so its branches may run at the same time.
    """
    pictures = _pictures(program)
    found: list[Branch | None] = []
    sections = 0
    for alone, stretch in groupby(pictures, lambda seen: len(seen) == 1):
        views = [next(iter(seen)) if alone else None for seen in stretch]
        different = list(dict.fromkeys(views))
        if alone and len(different) > 1:
            found += [(sections, different.index(view)) for view in views]
            sections += 1
        else:
            found += [None] * len(views)
    return found


def _pictures(program: Program) -> list[frozenset[Tensor]]:
    """The pictures among the program's inputs that each of its operations depends on."""
    seen: dict[Tensor, frozenset[Tensor]] = {}
    for tensor in program.inputs.values():
        seen[tensor] = frozenset((tensor,) if tensor.dtype is DType.U8 else ())
    for op in program.ops:
        seen[op.output] = frozenset().union(*(seen.get(tensor, ()) for tensor in op.operands()))
    return [seen[op.output] for op in program.ops]
