"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.onnx_export import onnx_model
from vla_simd_ros.benchmarks.peers.peer_executable import PeerExecutable
from vla_simd_ros.benchmarks.peers.policy_programs import PeerProgram, load_policy_programs
from vla_simd_ros.graph.ir import Array

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case

_NAME = "onnxruntime"
_DEVICE = "cpu"


class OnnxRuntimeBackend:
    """All graph optimizations on, its own thread pool, one operation at a time."""

    def __init__(self, setup: Setup) -> None:
        runtime = require("onnxruntime", _NAME)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = setup.threads
        options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL

        def load(program: PeerProgram) -> _Program:
            with onnx_model(program, _NAME) as path:
                session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            return _Program(runtime, session, program)

        self._executable = PeerExecutable(load_policy_programs(setup, _NAME), load)
        self.details = {"onnxruntime": runtime.__version__, "threads": str(setup.threads)}

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """See :class:`vla_simd_ros.benchmarks.backend.Staged`."""
        return self._executable.spent_ms

    def query(self, case: Case) -> npt.NDArray[np.float32]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        return self._executable.answer(case)


class _Program:
    """A session whose results stay where they are written, for the next program to read."""

    def __init__(self, runtime: Any, session: Any, program: PeerProgram) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._results = {
            name: runtime.OrtValue.ortvalue_from_shape_and_type(
                tensor.shape, tensor.dtype.numpy.type, _DEVICE
            )
            for name, tensor in program.results.items()
        }
        for name, value in self._results.items():
            self._binding.bind_ortvalue_output(name, value)
        self._given: dict[str, Array] = {}

    def give(self, argument: str, value: Array) -> None:
        self._given[argument] = value  # the binding reads it where it is
        self._binding.bind_cpu_input(argument, value)

    def bind(self, argument: str, held: Any) -> None:
        self._binding.bind_ortvalue_input(argument, held)

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def hold(self, result: str) -> Any:
        return self._results[result]

    def result(self, name: str) -> Array:
        value: Array = self._results[name].numpy()
        return value
