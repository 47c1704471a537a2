"""OpenVINO on the CPU, in fp32 and in its own int8."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.onnx_export import onnx_model
from vla_simd_ros.benchmarks.peers.query_program import load_query_program

if TYPE_CHECKING:
    from vla_simd_ros.inference import Observation


class _Backend:
    """One stream, tuned for latency; what is not quantized is in float32 also where the CPU has bfloat16
    units."""

    runner: str

    def __init__(self, setup: Setup) -> None:
        self._openvino = require("openvino", self.runner)
        self._program = load_query_program(setup, self.runner)
        self._core = self._openvino.Core()
        self._threads = setup.threads
        self._request: Any = None
        self.details = {"openvino": self._openvino.__version__, "threads": str(setup.threads)}
        with onnx_model(self._program, self.runner) as path:
            self._model = self._core.read_model(path)
            self._prepare()

    def _prepare(self) -> None:
        raise NotImplementedError

    def _compile(self, model: Any) -> None:
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": self._threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self._request = self._core.compile_model(model, "CPU", settings).create_infer_request()

    def query(self, observation: Observation) -> npt.NDArray[np.float32]:
        results = self._request.infer(self._program.arguments(observation), share_inputs=True)
        actions: npt.NDArray[np.float32] = results[0]
        return actions


class OpenVinoBackend(_Backend):
    """The model in fp32."""

    runner = "openvino"

    def _prepare(self) -> None:
        self._compile(self._model)


class OpenVinoInt8Backend(_Backend):
    """The model after NNCF's post-training quantization for transformers, the best of its kind."""

    runner = "openvino-int8"

    def _prepare(self) -> None:
        self._nncf = require("nncf", self.runner)
        self.details["nncf"] = self._nncf.__version__

    def calibrate(self, observations: Sequence[Observation]) -> None:
        """See :class:`vla_simd_ros.benchmarks.backend.Calibrated`."""
        nncf = self._nncf
        nncf.set_log_level(logging.ERROR)
        values = nncf.Dataset([self._program.arguments(observation) for observation in observations])
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            quantized = nncf.quantize(
                self._model, values, subset_size=len(observations), model_type=nncf.ModelType.TRANSFORMER
            )
        self._compile(quantized)
