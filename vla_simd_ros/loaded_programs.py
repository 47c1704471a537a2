"""A policy's programs as an executor loaded them, for instructions of several lengths."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from vla_simd_ros.executors.base import Executable, Executor
from vla_simd_ros.executors.int8_choice import choose_int8
from vla_simd_ros.graph.compile import compile_graph, optimize
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.graph.steps_alone import steps_alone
from vla_simd_ros.policies.base import PolicyDefinition

# Compiled programs are kept for this many instruction lengths.
_KEPT_LENGTHS = 4


class LoadedPrograms:
    """The weights of a policy and its compiled programs, for the instruction lengths used last."""

    def __init__(self, definition: PolicyDefinition, executor: Executor, int8: str | Sequence[str]) -> None:
        self._definition = definition
        self._executor = executor
        self._fold_cache = FoldCache()
        self.int8 = choose_groups(definition, int8, executor, self._fold_cache) if int8 else ()
        """The groups of layers in int8."""
        self._executables: OrderedDict[int | None, Executable] = OrderedDict()
        self._passes: dict[int, Executable] = {}

    def check_stored(self) -> None:
        """Raise CheckpointError if the checkpoint's file was written to and is still needed."""
        self._definition.check_stored()

    def executable(self, tokens: int | None) -> Executable:
        """The programs for an instruction of ``tokens`` tokens, compiled if they are not there."""
        if tokens in self._executables:
            self._executables.move_to_end(tokens)
        else:
            compiled = compile_graph(self._definition.build(tokens), self._fold_cache, self.int8)
            beside = next(reversed(self._executables.values()), None)
            self._executables[tokens] = self._executor.load(compiled, beside)
            while len(self._executables) > _KEPT_LENGTHS:
                self._executables.popitem(last=False)
        return self._executables[tokens]

    def passes(self, rows: int) -> Executable:
        """The step program for ``rows`` action tokens alone, over the states of the other programs; it works
        beside them, in memory of its own."""
        if rows not in self._passes:
            graph = self._definition.build(_longest(self._definition), rows)
            compiled = compile_graph(graph, self._fold_cache, self.int8)
            beside = next(iter(self._passes.values()), None)
            self._passes[rows] = self._executor.load(steps_alone(compiled), beside)
        return self._passes[rows]


def choose_groups(
    definition: PolicyDefinition, int8: str | Sequence[str], executor: object, fold_cache: FoldCache
) -> tuple[str, ...]:
    """The groups of layers that ``int8`` stands for, "auto" for those that ``executor`` computes faster so;
    the same for instructions of every length. Raises Int8GroupError."""
    return choose_int8(int8, policy_ops(definition, fold_cache), executor)


def policy_ops(definition: PolicyDefinition, fold_cache: FoldCache) -> list[Op]:
    """The operations of a policy's programs, for the longest instruction."""
    return list(optimize(definition.build(_longest(definition)), fold_cache).ops)


def _longest(definition: PolicyDefinition) -> int | None:
    return definition.spec.max_instruction_tokens or None
