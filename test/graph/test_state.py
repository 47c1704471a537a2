from __future__ import annotations

import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, KeyValueState, Lifetime, Tensor
from vla_simd_ros.graph.memory import plan_arena
from vla_simd_ros.graph.partition import partition, single_blocks
from vla_simd_ros.graph.state import versions
from vla_simd_ros.graph.storage import plan_storage

STATE = KeyValueState(rows=8, kv_heads=1, head=4)


class Cached:
    """A graph whose query appends three rows to a state and whose steps append and read one each."""

    def __init__(self) -> None:
        self.b = Builder()
        self.base = self.b.state("cache", STATE)
        with self.b.block("prefix"):
            self.prefix = self.appended(self.base, "prefix", 3, Lifetime.QUERY)
        with self.b.block("token"):
            self.token = self.appended(self.prefix, "token", 1, Lifetime.STEP)

    def appended(self, state: Tensor, name: str, rows: int, lifetime: Lifetime) -> Tensor:
        x = self.b.input(f"{name}.x", (rows, 4), DType.F32, lifetime)
        positions = self.b.input(f"{name}.positions", (rows,), DType.I32, lifetime)
        keys = self.b.activation("tanh", x, name="keys")
        return self.b.append(state, keys, x, positions, name="append")

    def read(self, state: Tensor, name: str = "y") -> Tensor:
        q = self.b.input(f"{name}.q", (1, 4), DType.F32, Lifetime.STEP)
        positions = self.b.input(f"{name}.positions", (1,), DType.I32, Lifetime.STEP)
        return self.b.cached_attention(q, state, positions, heads=1, kv_heads=1, scale=0.5, name=name)


def test_prefix_and_tokens_are_two_programs_of_one_graph() -> None:
    cached = Cached()
    cached.b.output("y", cached.read(cached.token))
    compiled = compile_graph(cached.b.graph(), FoldCache())
    query, step = compiled.programs[Lifetime.QUERY], compiled.programs[Lifetime.STEP]
    assert [op.kind for op in query.ops] == ["activation", "append"]
    assert [op.kind for op in step.ops] == ["activation", "append", "cached_attention"]
    # What crosses from one to the other is the state, in no other form.
    assert not step.uses and not query.provides and not compiled.programs[Lifetime.EPISODE].ops
    (by_query,), (by_step,) = query.states, step.states
    assert by_query.state is by_step.state is STATE
    assert (by_query.before.name, by_query.after.name) == ("cache", "prefix.append")
    assert (by_step.before.name, by_step.after.name) == ("prefix.append", "token.append")


def test_what_nobody_reads_is_not_appended() -> None:
    cached = Cached()
    cached.b.output("y", cached.read(cached.prefix))
    compiled = compile_graph(cached.b.graph(), FoldCache())
    assert [op.kind for op in compiled.programs[Lifetime.STEP].ops] == ["cached_attention"]


def test_a_version_that_was_replaced_is_not_read() -> None:
    cached = Cached()
    cached.b.output("old", cached.read(cached.prefix, "old"))
    cached.b.output("new", cached.read(cached.token, "new"))
    with pytest.raises(GraphError, match=r"'old': 'prefix.append' has become 'token.append', expected that"):
        compile_graph(cached.b.graph(), FoldCache())


def test_a_version_is_appended_to_once() -> None:
    cached = Cached()
    other = cached.appended(cached.prefix, "other", 1, Lifetime.STEP)
    cached.b.output("y", cached.read(cached.token))
    cached.b.output("z", cached.read(other, "z"))
    with pytest.raises(GraphError, match=r"append 'append': 'prefix.append' has become 'token.append'"):
        compile_graph(cached.b.graph(), FoldCache())


def test_only_states_are_appended_to() -> None:
    b = Builder()
    x = b.input("x", (2, 4), DType.F32, Lifetime.STEP)
    positions = b.input("positions", (2,), DType.I32, Lifetime.STEP)
    wide = b.concat([x, x], axis=1, name="wide")
    b.append(wide, x, x, positions, name="y")
    with pytest.raises(GraphError, match="append 'y': 'wide' is no state"):
        versions({}, b._graph.ops)


def test_states_take_no_room_in_the_arena() -> None:
    cached = Cached()
    cached.b.output("y", cached.read(cached.token))
    programs = list(compile_graph(cached.b.graph(), FoldCache()).programs.values())
    storage = plan_storage(programs)
    assert set(storage.states.values()) == {STATE}
    assert not {t.name for t in storage.states}.intersection(t.name for t in storage.buffers)
    assert plan_arena(list(storage.buffers.values())).nbytes < 9 * 64


def test_keys_and_values_cross_a_cut_and_the_state_does_not() -> None:
    cached = Cached()
    with cached.b.block("late"):
        given = cached.b.input("late.x", (1, 4), DType.F32, Lifetime.QUERY)
        late = cached.b.activation("tanh", given, name="tanh")
    cached.b.output("late", late)
    cached.b.output("y", cached.read(cached.token))
    compiled = compile_graph(cached.b.graph(), FoldCache())
    cut = partition(compiled, "prefix")
    assert not cut.prefix.states and list(cut.suffix.states) == [cached.base]
    # The row's inputs: what they are computed from is known on both sides, but the keys are not.
    assert [t.name for t in cut.boundary] == ["prefix.keys"]
    assert [op.kind for op in cut.prefix.programs[Lifetime.QUERY].ops] == ["activation"]
    assert "append" in [op.kind for op in cut.suffix.programs[Lifetime.QUERY].ops]
    assert {name for name, _ in single_blocks(compiled)} == {"prefix", "late"}
