from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.graph.passes.dead_code import eliminate_dead_code


def test_only_what_outputs_depend_on_is_kept() -> None:
    b = Builder()
    x = b.input("x", (2, 2), DType.F32, Lifetime.QUERY)
    unused = b.input("unused", (2, 2), DType.F32, Lifetime.QUERY)
    kept, dropped = (b.constant(name, np.ones((2, 2), np.float32)) for name in ("kept", "dropped"))
    b.output("y", b.add(x, kept, name="y"))
    b.add(b.add(unused, dropped, name="dead"), x, name="dead too")
    graph = eliminate_dead_code(b.graph())
    assert [op.output.name for op in graph.ops] == ["y"]
    assert list(graph.constants) == [kept]
    assert list(graph.inputs) == ["x", "unused"], "inputs are the policy's interface"
