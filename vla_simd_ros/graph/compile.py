"""From the graph that a policy describes to the programs that an executor runs."""

from __future__ import annotations

from collections.abc import Collection

from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Graph, Lifetime
from vla_simd_ros.graph.passes.common_subexpressions import eliminate_common_subexpressions
from vla_simd_ros.graph.passes.dead_code import eliminate_dead_code
from vla_simd_ros.graph.passes.distribute_linear import distribute_linear
from vla_simd_ros.graph.passes.fold_batch_norm import fold_batch_norm
from vla_simd_ros.graph.passes.fold_constants import fold_constants
from vla_simd_ros.graph.passes.fuse_epilogues import fuse_epilogues
from vla_simd_ros.graph.passes.hoist_embeddings import hoist_embeddings
from vla_simd_ros.graph.passes.hoist_row_slices import hoist_row_slices
from vla_simd_ros.graph.passes.merge_linears import merge_linears
from vla_simd_ros.graph.passes.quantize import quantize
from vla_simd_ros.graph.passes.split_columns import split_columns
from vla_simd_ros.graph.passes.split_constant_rows import split_constant_rows
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy
from vla_simd_ros.graph.split import split_program


def compile_graph(graph: Graph, fold_cache: FoldCache, int8: Collection[str] = ()) -> CompiledPolicy:
    """Optimize ``graph`` and split it into programs; layers of the groups ``int8`` are computed in int8.

    Graphs of one policy compiled with the same ``fold_cache`` (for instructions of different lengths)
    share every constant that does not depend on what differs between them. Raises GraphError, and
    Int8GroupError for a group that the graph does not have.
    """
    graph = optimize(graph, fold_cache)
    process = split_program(graph, Lifetime.PROCESS)
    graph = quantize(eliminate_dead_code(fold_constants(graph, fold_cache)), int8)
    return CompiledPolicy(
        programs={lifetime: split_program(graph, lifetime) for lifetime in RUNTIME_LIFETIMES},
        process=process,
        constants=graph.constants,
        inputs=graph.inputs,
        outputs=graph.outputs,
        states=graph.states,
    )


def optimize(graph: Graph, fold_cache: FoldCache) -> Graph:
    """The same results from fewer operations, each as early as it can be known."""
    graph = eliminate_dead_code(eliminate_common_subexpressions(graph))
    graph = hoist_embeddings(split_columns(graph))
    graph = split_constant_rows(hoist_row_slices(distribute_linear(graph)))
    graph = fold_batch_norm(graph, fold_cache)
    graph = hoist_row_slices(merge_linears(fuse_epilogues(graph)))
    return eliminate_dead_code(graph)
