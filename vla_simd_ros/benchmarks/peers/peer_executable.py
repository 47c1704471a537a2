"""A policy in another runtime: a program each for the query and the steps, which share what they can."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vla_simd_ros.benchmarks.peers.policy_programs import PeerProgram, PolicyPrograms, argument_name
from vla_simd_ros.graph.ir import Array, Lifetime

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case


class LoadedProgram(Protocol):
    """A program in a runtime. Its arguments stay until they are replaced."""

    def give(self, argument: str, value: Array) -> None:
        """Set an argument; ``value`` must not change before the next run."""
        ...

    def bind(self, argument: str, held: Any) -> None:
        """Set an argument to what :meth:`hold` of another program gave, without a copy."""
        ...

    def run(self) -> None:
        """Compute the results."""
        ...

    def hold(self, result: str) -> Any:
        """A result as the runtime keeps it, good until the next run."""
        ...

    def result(self, name: str) -> Array:
        """A result, good until the next run."""
        ...


class PeerExecutable:
    """The programs that ``load`` makes of those of a policy, whose instruction is encoded already."""

    def __init__(self, programs: PolicyPrograms, load: Callable[[PeerProgram], LoadedProgram]) -> None:
        self._loaded = {lifetime: load(program) for lifetime, program in programs.by_lifetime.items()}
        # The runtime has the weights now; another copy would be one too many.
        self._programs = {
            lifetime: replace(program, module=None) for lifetime, program in programs.by_lifetime.items()
        }
        self._policy = programs.policy
        self.spent_ms: dict[str, float] = {}
        """See :class:`vla_simd_ros.benchmarks.backend.Staged`."""
        for lifetime, program in self._programs.items():
            for name in programs.kept.keys() & program.arguments.keys():
                self._loaded[lifetime].give(name, programs.kept[name])

    def answer(self, case: Case) -> Array:
        """The actions in robot units for a query."""
        self.spent_ms = {}
        return self._policy.run(self, case)["action"]

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program; what the steps need of the query's values and results is handed on to them.

        Returns copies of the graph's outputs that it computes.
        """
        if lifetime not in self._loaded:
            return {}
        program, loaded = self._programs[lifetime], self._loaded[lifetime]
        given = {argument_name(name): value for name, value in inputs.items()}
        for name in given.keys() & program.arguments.keys():
            loaded.give(name, given[name])
        start = time.perf_counter_ns()
        loaded.run()
        spent = (time.perf_counter_ns() - start) / 1e6
        self.spent_ms[program.name] = self.spent_ms.get(program.name, 0.0) + spent
        if lifetime is Lifetime.QUERY and Lifetime.STEP in self._loaded:
            self._hand_on(given)
        return {name: np.array(loaded.result(result)) for name, result in program.outputs.items()}

    def _hand_on(self, given: Mapping[str, Array]) -> None:
        """Give the steps what they read of the query's values and results."""
        query, step = self._loaded[Lifetime.QUERY], self._loaded[Lifetime.STEP]
        wanted = self._programs[Lifetime.STEP].arguments.keys()
        for name in self._programs[Lifetime.QUERY].results.keys() & wanted:
            step.bind(name, query.hold(name))
        for name in given.keys() & wanted:
            step.give(name, given[name])
