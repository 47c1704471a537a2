"""Splitting a graph into one program per lifetime."""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.programs import Program


def split_program(graph: Graph, lifetime: Lifetime) -> Program:
    """The program of all operations of ``lifetime``, with what it takes from others and leaves to them."""
    ops = [op for op in graph.ops if op.output.lifetime is lifetime]
    shorter = [op for op in graph.ops if op.output.lifetime > lifetime]
    outputs = {name: t for name, t in graph.outputs.items() if t.lifetime is lifetime}
    read = _read_by(ops)
    defined = {op.output for op in ops} | {t for t in graph.inputs.values() if t.lifetime is lifetime}
    read_elsewhere = [tensor for tensor in _read_by(shorter) if tensor in defined]
    return Program(
        lifetime=lifetime,
        ops=tuple(ops),
        inputs={name: t for name, t in graph.inputs.items() if t.lifetime is lifetime},
        uses=tuple(t for t in read if Lifetime.PROCESS < t.lifetime < lifetime),
        provides=tuple(dict.fromkeys([*read_elsewhere, *outputs.values()])),
        outputs=outputs,
        constants=tuple(t for t in read if t in graph.constants),
    )


def _read_by(ops: list[Op]) -> list[Tensor]:
    return list(dict.fromkeys(tensor for op in ops for tensor in op.operands()))
