"""Every pass, and all of them together, leave the results as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from random_graphs import assert_same_results, graphs

from vla_simd_ros.graph.compile import optimize
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Graph
from vla_simd_ros.graph.passes.common_subexpressions import eliminate_common_subexpressions
from vla_simd_ros.graph.passes.dead_code import eliminate_dead_code
from vla_simd_ros.graph.passes.distribute_linear import distribute_linear
from vla_simd_ros.graph.passes.fold_batch_norm import fold_batch_norm
from vla_simd_ros.graph.passes.fold_constants import fold_constants
from vla_simd_ros.graph.passes.fuse_epilogues import fuse_epilogues
from vla_simd_ros.graph.passes.hoist_embeddings import hoist_embeddings
from vla_simd_ros.graph.passes.hoist_row_slices import hoist_row_slices
from vla_simd_ros.graph.passes.merge_linears import merge_linears
from vla_simd_ros.graph.passes.split_columns import split_columns
from vla_simd_ros.graph.passes.split_constant_rows import split_constant_rows

EXACT = 1e-9
ROUNDED = 1e-4

PASSES: dict[str, tuple[Callable[[Graph], Graph], float]] = {
    "common_subexpressions": (eliminate_common_subexpressions, EXACT),
    "dead_code": (eliminate_dead_code, EXACT),
    "distribute_linear": (distribute_linear, EXACT),
    "split_columns": (split_columns, EXACT),
    "hoist_embeddings": (lambda g: hoist_embeddings(split_columns(g)), EXACT),
    "split_constant_rows": (lambda g: split_constant_rows(distribute_linear(g)), EXACT),
    "fold_batch_norm": (lambda g: fold_batch_norm(g, FoldCache()), ROUNDED),
    "fuse_epilogues": (fuse_epilogues, EXACT),
    "merge_linears": (merge_linears, EXACT),
    "hoist_row_slices": (hoist_row_slices, ROUNDED),
    "fold_constants": (lambda g: fold_constants(g, FoldCache()), ROUNDED),
    "optimize": (lambda g: optimize(g, FoldCache()), ROUNDED),
    "optimize and fold": (lambda g: fold_constants(optimize(g, FoldCache()), FoldCache()), ROUNDED),
}


@pytest.mark.parametrize("name", PASSES)
@given(case=graphs())
@settings(max_examples=60, deadline=None)
def test_results_are_preserved(name: str, case: tuple[Graph, dict[str, Array]]) -> None:
    graph, inputs = case
    rewrite, tolerance = PASSES[name]
    assert_same_results(graph, rewrite(graph), inputs, tolerance)
