"""Splitting a graph into one program per lifetime."""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.programs import Program
from vla_simd_ros.graph.state import uses, versions


def split_program(graph: Graph, lifetime: Lifetime) -> Program:
    """The program of all operations of ``lifetime``, with what it takes from others and leaves to them."""
    ops = [op for op in graph.ops if op.output.lifetime is lifetime]
    shorter = [op for op in graph.ops if op.output.lifetime > lifetime]
    outputs = {name: t for name, t in graph.outputs.items() if t.lifetime is lifetime}
    known = versions(graph.states, graph.ops)
    read = [tensor for tensor in _read_by(ops) if tensor not in known]
    defined = {op.output for op in ops} | {t for t in graph.inputs.values() if t.lifetime is lifetime}
    read_elsewhere = [t for t in _read_by(shorter) if t in defined and t not in known]
    return Program(
        lifetime=lifetime,
        ops=tuple(ops),
        inputs={name: t for name, t in graph.inputs.items() if t.lifetime is lifetime},
        uses=tuple(t for t in read if Lifetime.PROCESS < t.lifetime < lifetime),
        provides=tuple(dict.fromkeys([*read_elsewhere, *outputs.values()])),
        outputs=outputs,
        constants=tuple(t for t in read if t in graph.constants),
        states=uses(ops, known),
    )


def _read_by(ops: list[Op]) -> list[Tensor]:
    return list(dict.fromkeys(tensor for op in ops for tensor in op.operands()))
