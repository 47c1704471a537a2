"""OpenVINO on the CPU, in fp32 and in its own int8."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.onnx_export import onnx_model
from vla_simd_ros.benchmarks.peers.peer_executable import LoadedProgram, PeerExecutable
from vla_simd_ros.benchmarks.peers.policy_programs import PeerProgram, load_policy_programs
from vla_simd_ros.graph.ir import Array

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case


class OpenVinoBackend:
    """One stream, tuned for latency; what is not quantized is in float32 also where the CPU has bfloat16
    units."""

    runner = "openvino"

    def __init__(self, setup: Setup) -> None:
        self._openvino = require("openvino", self.runner)
        self._core = self._openvino.Core()
        self._settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": setup.threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self._executable = PeerExecutable(load_policy_programs(setup, self.runner), self._load)
        self.details = {"openvino": self._openvino.__version__, "threads": str(setup.threads)}

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """See :class:`vla_simd_ros.benchmarks.backend.Staged`."""
        return self._executable.spent_ms

    def query(self, case: Case) -> npt.NDArray[np.float32]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        return self._executable.answer(case)

    def _load(self, program: PeerProgram) -> LoadedProgram:
        with onnx_model(program, self.runner) as path:
            return self._compile(self._core.read_model(path), program)

    def _compile(self, model: Any, program: PeerProgram) -> LoadedProgram:
        return self._loaded(model, program)

    def _loaded(self, model: Any, program: PeerProgram) -> _Program:
        compiled = self._core.compile_model(model, "CPU", self._settings)
        return _Program(self._openvino, compiled, program)


class OpenVinoInt8Backend(OpenVinoBackend):
    """The model after NNCF's post-training quantization for transformers, the best of its kind."""

    runner = "openvino-int8"

    def __init__(self, setup: Setup) -> None:
        self._nncf = require("nncf", self.runner)
        self._quantizable: list[_Quantizable] = []
        super().__init__(setup)
        self.details["nncf"] = self._nncf.__version__

    def _compile(self, model: Any, program: PeerProgram) -> LoadedProgram:
        loaded = _Quantizable(model, program, self._loaded)
        self._quantizable.append(loaded)
        return loaded

    def calibrate(self, cases: Sequence[Case]) -> None:
        """See :class:`vla_simd_ros.benchmarks.backend.Calibrated`."""
        self._nncf.set_log_level(logging.ERROR)
        for case in cases:
            self.query(case)
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            for loaded in self._quantizable:
                loaded.quantize(self._nncf)


class _Program:
    """An inference request whose tensors are bound to where the values are."""

    def __init__(self, openvino: Any, compiled: Any, program: PeerProgram) -> None:
        self._openvino = openvino
        self._request = compiled.create_infer_request()
        self._results = {
            name: self.tensor(np.zeros(tensor.shape, tensor.dtype.numpy))
            for name, tensor in program.results.items()
        }
        for name, value in self._results.items():
            self._request.set_tensor(name, value)
        self._bound: dict[str, Any] = {}

    def tensor(self, value: Array) -> Any:
        """An array as a tensor in the same memory."""
        return self._openvino.Tensor(value, shared_memory=True)

    def give(self, argument: str, value: Array) -> None:
        self.bind(argument, self.tensor(value))

    def bind(self, argument: str, held: Any) -> None:
        self._bound[argument] = held  # the request does not keep an array's memory
        self._request.set_tensor(argument, held)

    def run(self) -> None:
        self._request.infer()

    def hold(self, result: str) -> Any:
        return self._results[result]

    def result(self, name: str) -> Array:
        value: Array = self._results[name].data
        return value


class _Quantizable:
    """A program in fp32 that remembers what it is run with, until it is replaced by one in int8."""

    def __init__(
        self, model: Any, program: PeerProgram, load: Callable[[Any, PeerProgram], _Program]
    ) -> None:
        self._model = model
        self._program = program
        self._load = load
        self._loaded = load(model, program)
        self._bound: dict[str, Any] = {}
        self._seen: list[dict[str, Array]] | None = []

    def quantize(self, nncf: Any) -> None:
        """Replace the program by one in int8, with ranges of values taken from the runs until now."""
        seen, self._seen = self._seen or [], None
        quantized = nncf.quantize(
            self._model,
            nncf.Dataset(seen),
            subset_size=len(seen),
            model_type=nncf.ModelType.TRANSFORMER,
        )
        self._loaded = self._load(quantized, self._program)
        for argument, held in self._bound.items():
            self._loaded.bind(argument, held)

    def give(self, argument: str, value: Array) -> None:
        self.bind(argument, self._loaded.tensor(value))

    def bind(self, argument: str, held: Any) -> None:
        self._bound[argument] = held
        self._loaded.bind(argument, held)

    def run(self) -> None:
        if self._seen is not None:
            self._seen.append({name: np.array(held.data) for name, held in self._bound.items()})
        self._loaded.run()

    def hold(self, result: str) -> Any:
        return self._loaded.hold(result)

    def result(self, name: str) -> Array:
        return self._loaded.result(name)
