"""Cutting a compiled policy in two at a block boundary, for two executors that work one after the other.

The cut goes through the query program: the *prefix* computes the blocks up to the cut, the *suffix* the
others and all solver steps. What the instruction sets is computed on either side as far as that side reads
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Graph, KeyValueState, Lifetime, Op, Tensor
from vla_simd_ros.graph.passes.dead_code import eliminate_dead_code
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy
from vla_simd_ros.graph.split import split_program
from vla_simd_ros.graph.state import APPEND, versions


@dataclass(frozen=True, eq=False)
class Partition:
    """Both sides of a cut, each a policy that any executor loads.

    The query program of ``prefix`` has the tensors of ``boundary`` as outputs, that of ``suffix`` has them
    as inputs, each under its own name. Results of the policy stay with the side that computes them.
    ``blocks`` are the query program's blocks on either side, in order.
    """

    prefix: CompiledPolicy
    suffix: CompiledPolicy
    boundary: tuple[Tensor, ...]
    blocks: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def boundary_bytes(self) -> int:
        """What crosses the cut in every query."""
        return sum(tensor.nbytes for tensor in self.boundary)


def query_blocks(compiled: CompiledPolicy) -> tuple[str, ...]:
    """The blocks of the query program, in the order in which a cut separates them."""
    return tuple(dict.fromkeys(_stages(compiled.programs[Lifetime.QUERY].ops)))


def cut_points(compiled: CompiledPolicy) -> tuple[str, ...]:
    """The blocks after which the policy can be cut: all but the last, and that too where solver steps
    follow."""
    blocks = query_blocks(compiled)
    return blocks if compiled.programs[Lifetime.STEP].ops else blocks[:-1]


def partition(compiled: CompiledPolicy, after: str) -> Partition:
    """Cut ``compiled`` after the block ``after``.

    Raises GraphError where the query program has no such block, or nothing comes after it.
    """
    query = compiled.programs[Lifetime.QUERY]
    possible = cut_points(compiled)
    if after not in possible:
        expected = ", ".join(possible) or "a policy of more than one block"
        raise GraphError(f"the query program cannot be cut after '{after}', expected one of: {expected}")
    blocks = query_blocks(compiled)
    first = blocks[: blocks.index(after) + 1]
    stages = _stages(query.ops)
    before = [op for op, stage in zip(query.ops, stages, strict=True) if stage in first]
    behind = [op for op, stage in zip(query.ops, stages, strict=True) if stage not in first]
    step = compiled.programs[Lifetime.STEP].ops
    behind = [*_repeated_appends(before, [*behind, *step]), *behind]
    boundary = _crossing(before, [*behind, *step])
    computed = {op.output for op in before}
    early = {name: t for name, t in compiled.outputs.items() if t in computed}
    late = {name: t for name, t in compiled.outputs.items() if t not in computed}
    return Partition(
        prefix=_side(compiled, before, (), {t.name: t for t in boundary} | early),
        suffix=_side(compiled, behind, boundary, late),
        boundary=boundary,
        blocks=(first, blocks[len(first) :]),
    )


def single_blocks(compiled: CompiledPolicy) -> Iterator[tuple[str, CompiledPolicy]]:
    """Each block of the query program as a policy of its own, in order, whose outputs are what later blocks
    and solver steps read, under their own names, and the policy's results. Solver steps are in none."""
    query, step = compiled.programs[Lifetime.QUERY].ops, compiled.programs[Lifetime.STEP].ops
    stages = _stages(query)
    states = _states(compiled)
    remaining = [*query, *step]
    computed: set[Tensor] = set()
    for block in dict.fromkeys(stages):
        ops = [op for op, stage in zip(query, stages, strict=True) if stage == block]
        remaining = [op for op in remaining if op not in ops]
        given = {t: None for op in ops for t in op.operands() if t in computed and t not in states}
        own = {op.output for op in ops}
        computed |= own
        outputs = {t.name: t for t in _crossing(ops, remaining) if t not in states}
        outputs |= {name: t for name, t in compiled.outputs.items() if t in own}
        yield block, _side(compiled, ops, tuple(given), outputs)


def _stages(ops: Sequence[Op]) -> list[str]:
    """For each operation the block that it can be computed with: its own, or a later one that it depends on.

    Some blocks come up more than once, before and after others that lie between (the tokens of several
    cameras); an operation that needs a later block's result belongs behind it.
    """
    order: dict[str, int] = {}
    for op in ops:
        order.setdefault(op.block, len(order))
    names = list(order)
    stage: dict[Tensor, int] = {}
    for op in ops:
        stage[op.output] = max([order[op.block], *(stage[t] for t in op.operands() if t in stage)])
    return [names[stage[op.output]] for op in ops]


def _repeated_appends(before: Sequence[Op], behind: Sequence[Op]) -> list[Op]:
    """What ``before`` appends to states that ``behind`` reads: it is appended there too, so that not the
    state but the new keys and values cross. Who does not read the state does not append to it."""
    needed = {tensor for op in behind for tensor in op.operands()}
    repeated: list[Op] = []
    for op in reversed(before):
        if op.kind == APPEND and op.output in needed:
            repeated.append(op)
            needed.update(op.operands())
    return repeated[::-1]


def _crossing(before: Sequence[Op], behind: Sequence[Op]) -> tuple[Tensor, ...]:
    computed = {op.output for op in before}.difference(op.output for op in behind)
    return tuple(dict.fromkeys(t for op in behind for t in op.operands() if t in computed))


def _states(compiled: CompiledPolicy) -> dict[Tensor, KeyValueState]:
    """The states by all of their versions: what a side does not append itself is there when it begins."""
    ops = [op for lifetime in RUNTIME_LIFETIMES for op in compiled.programs[lifetime].ops]
    return versions(compiled.states, ops)


def _side(
    compiled: CompiledPolicy, query: Sequence[Op], given: Sequence[Tensor], outputs: dict[str, Tensor]
) -> CompiledPolicy:
    """The policy of the query operations ``query``, with ``given`` among its inputs."""
    episode, step = (compiled.programs[lifetime].ops for lifetime in (Lifetime.EPISODE, Lifetime.STEP))
    inputs = {**compiled.inputs, **{tensor.name: tensor for tensor in given}}
    ops = [*episode, *query, *step]
    graph = eliminate_dead_code(Graph(inputs, dict(compiled.constants), ops, outputs, _states(compiled)))
    read = {t for op in graph.ops for t in op.operands()} | set(outputs.values())
    made = {op.output for op in graph.ops}
    graph.states = {tensor: state for tensor, state in graph.states.items() if tensor not in made}
    graph.inputs = {name: tensor for name, tensor in inputs.items() if tensor in read}
    return CompiledPolicy(
        programs={lifetime: split_program(graph, lifetime) for lifetime in RUNTIME_LIFETIMES},
        process=compiled.process,
        constants=graph.constants,
        inputs=graph.inputs,
        outputs=graph.outputs,
        states=graph.states,
    )
