"""PyTorch, operation by operation and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.query_program import load_query_program

if TYPE_CHECKING:
    from vla_simd_ros.inference import Observation


class _TorchBackend:
    runner: str

    def __init__(self, setup: Setup) -> None:
        self._torch = require("torch", self.runner)
        self._torch.set_num_threads(setup.threads)
        self._torch.set_num_interop_threads(1)
        self._held_to = setup.held_to
        self._program = load_query_program(setup, self.runner)
        self._call: Callable[..., Any] = self._prepare(self._program.module)
        self.details = {"torch": self._torch.__version__, "threads": str(setup.threads)}

    def _prepare(self, module: Any) -> Callable[..., Any]:
        raise NotImplementedError

    def query(self, observation: Observation) -> npt.NDArray[np.float32]:
        arguments = [self._torch.from_numpy(value) for value in self._program.arguments(observation)]
        with self._torch.no_grad():
            actions: npt.NDArray[np.float32] = self._call(*arguments)[0].numpy()
        return actions


class EagerBackend(_TorchBackend):
    """PyTorch as it runs without preparation."""

    runner = "torch-eager"

    def _prepare(self, module: Any) -> Callable[..., Any]:
        prepared: Callable[..., Any] = module
        return prepared


class CompiledBackend(_TorchBackend):
    """torch.compile in its default mode, with weights frozen into the compiled program, which is faster."""

    runner = "torch-compile"

    def _prepare(self, module: Any) -> Callable[..., Any]:
        import torch._inductor.config as inductor

        inductor.freezing = True
        inductor.compile_threads = 1
        if self._held_to == "avx2":
            inductor.cpp.simdlen = 256
        compiled: Callable[..., Any] = self._torch.compile(module)
        return compiled
