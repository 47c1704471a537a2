from __future__ import annotations

from itertools import combinations

import numpy as np

from vla_simd_ros.graph.branches import find_branches
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Lifetime, Tensor
from vla_simd_ros.graph.memory import plan_arena
from vla_simd_ros.graph.programs import CompiledPolicy, Program
from vla_simd_ros.graph.storage import plan_storage


def two_cameras(cameras: tuple[str, ...] = ("front", "wrist")) -> CompiledPolicy:
    """A chain of layers on each camera's picture; their ends and a state are joined."""
    rng = np.random.default_rng(3)
    b = Builder()

    def constant(name: str, *shape: int) -> Tensor:
        return b.constant(name, rng.normal(size=shape).astype(np.float32))

    state = b.input("state", (1, 8), DType.F32, Lifetime.QUERY)
    ends = [b.linear(state, constant("w.state", 8, 8), name="token")]
    for camera in cameras:
        x = b.input(f"image.{camera}", (12, 16, 3), DType.U8, Lifetime.QUERY)
        x = b.normalize_image(x, constant(f"o.{camera}", 3), constant(f"d.{camera}", 3), name=f"n.{camera}")
        x = b.conv2d(x, constant(f"w1.{camera}", 8, 3, 3, 3), padding=1, name=f"a.{camera}")
        x = b.conv2d(x, constant(f"w2.{camera}", 8, 3, 3, 8), stride=2, padding=1, name=f"b.{camera}")
        ends.append(b.reshape(x, (48, 8), name=f"c.{camera}"))
    joined = b.concat(ends, axis=0, name="joined")
    b.output("y", b.linear(joined, constant("w.y", 8, 8), name="y"))
    return compile_graph(b.graph(), FoldCache())


def query(compiled: CompiledPolicy) -> Program:
    return compiled.programs[Lifetime.QUERY]


def test_pictures_are_branches_of_one_section() -> None:
    program = query(two_cameras())
    found = dict(zip((op.output.name for op in program.ops), find_branches(program), strict=True))
    assert [found[f"{part}.front"] for part in "nab"] == [(0, 0)] * 3
    assert [found[f"{part}.wrist"] for part in "nab"] == [(0, 1)] * 3
    assert found["token"] is None and found["joined"] is None and found["y"] is None


def test_one_picture_has_no_branches() -> None:
    program = query(two_cameras(("front",)))
    assert find_branches(program) == [None] * len(program.ops)


def test_memory_of_different_branches_is_apart() -> None:
    compiled = two_cameras()
    programs = [compiled.programs[lifetime] for lifetime in sorted(compiled.programs)]
    storage = plan_storage(programs, branching=True)
    plan = plan_arena(list(storage.buffers.values()))
    places = {
        tensor.name: (offset, offset + tensor.nbytes)
        for tensor, offset in zip(storage.buffers, plan.offsets, strict=True)
    }
    for one, other in combinations(places, 2):
        if {one.partition(".")[2], other.partition(".")[2]} == {"front", "wrist"}:
            (begin, end), (start, stop) = places[one], places[other]
            assert end <= start or stop <= begin, (one, other)
    assert plan_arena(list(plan_storage(programs).buffers.values())).nbytes < plan.nbytes
