"""OpenVINO on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.onnx_export import onnx_model
from vla_simd_ros.benchmarks.peers.query_program import load_query_program

if TYPE_CHECKING:
    from vla_simd_ros.inference import Observation


class OpenVinoBackend:
    """One stream, tuned for latency, in float32 also where the CPU has bfloat16 units."""

    def __init__(self, setup: Setup) -> None:
        openvino = require("openvino", "openvino")
        self._program = load_query_program(setup, "openvino")
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": setup.threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = openvino.Core()
        with onnx_model(self._program, "openvino") as path:
            compiled = core.compile_model(core.read_model(path), "CPU", settings)
        self._request = compiled.create_infer_request()
        self.details = {"openvino": openvino.__version__, "threads": str(setup.threads)}

    def query(self, observation: Observation) -> npt.NDArray[np.float32]:
        results = self._request.infer(self._program.arguments(observation), share_inputs=True)
        actions: npt.NDArray[np.float32] = results[0]
        return actions
