"""Drop what no output depends on."""

from __future__ import annotations

from dataclasses import replace

from vla_simd_ros.graph.ir import Graph, Op


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without operations, constants and states that no output depends on; inputs stay declared."""
    live = set(graph.outputs.values())
    kept: list[Op] = []
    for op in reversed(graph.ops):
        if op.output in live:
            live.update(op.operands())
            kept.append(op)
    constants = {tensor: value for tensor, value in graph.constants.items() if tensor in live}
    states = {tensor: state for tensor, state in graph.states.items() if tensor in live}
    return replace(graph, constants=constants, ops=kept[::-1], states=states)
