"""The oracle: every operation in plain numpy, in float64 unless asked otherwise."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from vla_simd_ros.executors.base import Cancelled, Executable, InputError, check_inputs, check_order
from vla_simd_ros.graph.evaluate import evaluate
from vla_simd_ros.graph.ir import Array, Graph, KeyValueState, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy

States = WeakKeyDictionary[KeyValueState, Array]
"""The rows of every state, shared by all that an executor loaded."""


class ReferenceExecutor:
    """Runs compiled policies in numpy, every operation in ``dtype``; slow, and made to be right."""

    isa = "numpy"
    threads = 0

    def __init__(self, dtype: npt.DTypeLike = np.float64) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._cancelled = threading.Event()
        self._states: States = WeakKeyDictionary()

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> ReferenceExecutable:
        """Keep ``compiled`` for running."""
        return ReferenceExecutable(compiled, self._dtype, self._cancelled, self._states)

    def cancel(self) -> None:
        """End the run in flight before its next operation, and later ones."""
        self._cancelled.set()

    def resume(self) -> None:
        """Let runs run again."""
        self._cancelled.clear()


class ReferenceExecutable:
    """A compiled policy and the values its programs left behind."""

    def __init__(
        self, compiled: CompiledPolicy, dtype: np.dtype[Any], cancelled: threading.Event, states: States
    ) -> None:
        self._compiled = compiled
        self._constants = {tensor: value.array() for tensor, value in compiled.constants.items()}
        self._dtype = dtype
        self._cancelled = cancelled
        self._states = states
        self._kept: dict[Tensor, Array] = {}
        self._ran: set[Lifetime] = set()

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one program; see :class:`vla_simd_ros.executors.base.Executable`."""
        program = self._compiled.programs[lifetime]
        check_inputs(program, inputs, self._dtype)
        check_order(program, self._ran)
        self._ran = {other for other in self._ran if other < lifetime}
        values: dict[Tensor, Array] = {t: self._value(t) for t in (*program.constants, *program.uses)}
        values.update((tensor, inputs[name]) for name, tensor in program.inputs.items())
        values.update((use.before, self._state(use.state)) for use in program.states)
        for op in program.ops:
            if self._cancelled.is_set():
                raise Cancelled("the run was cancelled")
            operands = [None if t is None else values[t] for t in op.inputs]
            try:
                values[op.output] = evaluate(op, operands, self._dtype)
            except IndexError as error:
                raise InputError(f"{lifetime.name}: {op.kind} '{op.output.name}': {error}") from None
        self._states.update((use.state, values[use.after]) for use in program.states)
        self._kept.update((t, values[t].copy()) for t in program.provides)
        self._ran.add(lifetime)
        return {name: self._kept[tensor].copy() for name, tensor in program.outputs.items()}

    def tensor(self, tensor: Tensor) -> Array:
        """The current value of a provided tensor or a constant."""
        return np.array(self._value(tensor))

    def _state(self, state: KeyValueState) -> Array:
        if state not in self._states:
            self._states[state] = np.zeros(state.shape, self._dtype)
        return self._states[state]

    def _value(self, tensor: Tensor) -> Array:
        if tensor in self._constants:
            return self._constants[tensor]
        if tensor.lifetime not in self._ran:
            raise KeyError(f"'{tensor.name}': the {tensor.lifetime.name} program has not run")
        return self._kept[tensor]


def run_graph(
    graph: Graph, inputs: Mapping[str, Array], dtype: npt.DTypeLike = np.float64
) -> dict[Tensor, Array]:
    """The value of every tensor of a graph as it was written, before any pass, from empty states."""
    values: dict[Tensor, Array] = {tensor: value.array() for tensor, value in graph.constants.items()}
    values.update((tensor, inputs[name]) for name, tensor in graph.inputs.items())
    values.update((tensor, np.zeros(state.shape, dtype)) for tensor, state in graph.states.items())
    for op in graph.ops:
        values[op.output] = evaluate(op, [None if t is None else values[t] for t in op.inputs], dtype)
    return values
