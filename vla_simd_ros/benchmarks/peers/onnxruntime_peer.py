"""ONNX Runtime on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.onnx_export import OUTPUT, onnx_model
from vla_simd_ros.benchmarks.peers.query_program import load_query_program

if TYPE_CHECKING:
    from vla_simd_ros.inference import Observation


class OnnxRuntimeBackend:
    """All graph optimizations on, its own thread pool, one operation at a time."""

    def __init__(self, setup: Setup) -> None:
        runtime = require("onnxruntime", "onnxruntime")
        self._program = load_query_program(setup, "onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = setup.threads
        options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
        with onnx_model(self._program, "onnxruntime") as path:
            self._session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.details = {"onnxruntime": runtime.__version__, "threads": str(setup.threads)}

    def query(self, observation: Observation) -> npt.NDArray[np.float32]:
        values = self._program.arguments(observation)
        feeds = dict(zip(self._program.argument_names, values, strict=True))
        actions: npt.NDArray[np.float32] = self._session.run([OUTPUT], feeds)[0]
        return actions
