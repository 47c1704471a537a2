"""PyTorch, operation by operation and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.peer_executable import PeerExecutable
from vla_simd_ros.benchmarks.peers.policy_programs import PeerProgram, load_policy_programs
from vla_simd_ros.graph.ir import Array

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case


class _TorchBackend:
    runner: str

    def __init__(self, setup: Setup) -> None:
        torch = require("torch", self.runner)
        torch.set_num_threads(setup.threads)
        if torch.get_num_interop_threads() != 1:  # it can be set once in a process
            torch.set_num_interop_threads(1)
        self._torch = torch
        self._held_to = setup.held_to
        programs = load_policy_programs(setup, self.runner)
        self._executable = PeerExecutable(programs, lambda p: TorchProgram(torch, self._prepare(p), p))
        self.details = {"torch": torch.__version__, "threads": str(setup.threads)}

    def _prepare(self, program: PeerProgram) -> Callable[..., Any]:
        raise NotImplementedError

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """See :class:`vla_simd_ros.benchmarks.backend.Staged`."""
        return self._executable.spent_ms

    def query(self, case: Case) -> npt.NDArray[np.float32]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        with self._torch.no_grad():
            return self._executable.answer(case)


class EagerBackend(_TorchBackend):
    """PyTorch as it runs without preparation."""

    runner = "torch-eager"

    def _prepare(self, program: PeerProgram) -> Callable[..., Any]:
        prepared: Callable[..., Any] = program.module
        return prepared


class CompiledBackend(_TorchBackend):
    """torch.compile in its default mode, with weights frozen into the compiled programs, which is faster."""

    runner = "torch-compile"

    def _prepare(self, program: PeerProgram) -> Callable[..., Any]:
        import torch._inductor.config as inductor

        inductor.freezing = True
        inductor.compile_threads = 1
        if self._held_to == "avx2":
            inductor.cpp.simdlen = 256
        # Exported first: a program is one graph then, where the compiler would fall back to pieces of it.
        examples = tuple(self._torch.from_numpy(value) for value in program.examples)
        graph = self._torch.export.export(program.module, examples).module()
        # Its shapes never change; what looks as if they did may fail to compile otherwise.
        compiled: Callable[..., Any] = self._torch.compile(graph, dynamic=False)
        return compiled


class TorchProgram:
    """A callable from tensors to a sequence of tensors, which are handed on as they are."""

    def __init__(self, torch: Any, call: Callable[..., Any], program: PeerProgram) -> None:
        self._torch = torch
        self._call = call
        self._arguments = dict.fromkeys(program.arguments)
        self._names = tuple(program.results)
        self._results: dict[str, Any] = {}

    def give(self, argument: str, value: Array) -> None:
        self._arguments[argument] = self._torch.from_numpy(value)

    def bind(self, argument: str, held: Any) -> None:
        self._arguments[argument] = held

    def run(self) -> None:
        self._results = dict(zip(self._names, self._call(*self._arguments.values()), strict=True))

    def hold(self, result: str) -> Any:
        return self._results[result]

    def result(self, name: str) -> Array:
        value: Array = self._results[name].numpy()
        return value
