"""Mark the layers of some groups to be computed in int8."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from vla_simd_ros.graph.int8 import INT8
from vla_simd_ros.graph.int8_groups import int8_groups, resolve_groups
from vla_simd_ros.graph.ir import Graph, Op, Tensor
from vla_simd_ros.graph.passes.rewriting import with_ops
from vla_simd_ros.graph.programs import CompiledPolicy


def quantize(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with the layers of the groups called ``names`` in int8.

    Comes after merging, when a merged layer is one layer of one group. Raises Int8GroupError for a group
    that the graph does not have.
    """
    groups = int8_groups(graph.ops)
    layers = {op.output for group in resolve_groups(names, groups) for op in groups[group]}
    return with_ops(graph, mark_int8(graph.ops, layers))


def mark_int8(ops: Iterable[Op], layers: Collection[Tensor]) -> list[Op]:
    """The operations, those that compute one of ``layers`` with the precision int8."""
    return [
        Op(op.kind, op.inputs, op.output, {**op.attrs, "precision": INT8}) if op.output in layers else op
        for op in ops
    ]


def with_int8_layers(compiled: CompiledPolicy, layers: Collection[Tensor]) -> CompiledPolicy:
    """The compiled policy with the layers that compute one of ``layers`` in int8; it shares all constants."""
    programs = {
        lifetime: replace(program, ops=tuple(mark_int8(program.ops, layers)))
        for lifetime, program in compiled.programs.items()
    }
    return replace(compiled, programs=programs)
