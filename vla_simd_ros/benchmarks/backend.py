"""What can be measured: a policy made ready to answer observations, by this engine or by a peer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.decoding.base import Decoded
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.graph.int8 import FP32, INT8
from vla_simd_ros.graph.ir import Array

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case


class BenchmarkError(Exception):
    """A measurement that cannot be made; the message says what is missing and what was expected."""


@dataclass(frozen=True)
class Setup:
    """What every backend is made from; ``instruction`` is for policies that use one, ``decoder`` for those
    that spell their actions, ``settings`` and the groups of layers in ``int8`` are this engine's, except for
    ``threads``, which every backend has."""

    checkpoint: str
    instruction: str
    settings: EngineSettings
    int8: str = ""
    decoder: DecoderOptions = DEFAULT_OPTIONS
    held_to: str = ""
    """Instruction set that a peer is held to where it allows that; empty: its choice."""

    @property
    def threads(self) -> int:
        """Threads that the backend computes with; 0 where it may choose."""
        return self.settings.threads


class Backend(Protocol):
    """A policy with its instruction set. One thread at a time."""

    details: Mapping[str, str]
    """Versions and settings that a repetition needs."""

    def query(self, case: Case) -> Array:
        """Actions in robot units ``[chunk, action width]`` for raw frames and an un-normalized state."""


@runtime_checkable
class Staged(Protocol):
    """A backend that can tell the time of its programs."""

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """Milliseconds of the last query by program: "query", and "step" for all steps together."""


@runtime_checkable
class Spelling(Protocol):
    """A backend that may decode its actions from tokens."""

    @property
    def decoded(self) -> Decoded | None:
        """How those of the last query were decoded; None for a policy that computes them."""


@runtime_checkable
class Profiled(Protocol):
    """A backend that can tell the time of its operations."""

    def profile(self, case: Case, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries."""


@runtime_checkable
class Calibrated(Protocol):
    """A backend that has to see queries before it can answer."""

    def calibrate(self, cases: Sequence[Case]) -> None:
        """Make ready, with ranges of values taken from these."""


@dataclass(frozen=True)
class RunnerSpec:
    """Where a runner's backend comes from (``module:callable`` taking a ``Setup``), its arithmetic (this
    engine's is what it is asked for), and the departure that is accepted of it where it is not the usual one
    of this arithmetic."""

    factory: str
    precision: str = FP32
    tolerance: float | None = None


OURS = "vla_simd"
OURS_FP32 = "vla_simd-fp32"
"""This engine without int8: what int8 brings, in turns."""
REFERENCE = "float64 reference"

_HERE = "vla_simd_ros.benchmarks"
RUNNERS: Mapping[str, RunnerSpec] = {
    OURS: RunnerSpec(f"{_HERE}.own:SimdBackend"),
    REFERENCE: RunnerSpec(f"{_HERE}.own:ReferenceBackend"),
    "torch-eager": RunnerSpec(f"{_HERE}.peers.torch_peer:EagerBackend"),
    "torch-compile": RunnerSpec(f"{_HERE}.peers.torch_peer:CompiledBackend"),
    "onnxruntime": RunnerSpec(f"{_HERE}.peers.onnxruntime_peer:OnnxRuntimeBackend"),
    "openvino": RunnerSpec(f"{_HERE}.peers.openvino_peer:OpenVinoBackend"),
    "executorch": RunnerSpec(f"{_HERE}.peers.executorch_peer:ExecuTorchBackend"),
    # One range per tensor, fixed when calibrated: on random weights actions depart by half of the largest.
    "openvino-int8": RunnerSpec(f"{_HERE}.peers.openvino_peer:OpenVinoInt8Backend", INT8, tolerance=1.0),
    OURS_FP32: RunnerSpec(f"{_HERE}.own:single_precision"),
}
PEERS = tuple(name for name in RUNNERS if name not in (OURS, REFERENCE))


def check_peers(names: list[str]) -> None:
    """Raises ``BenchmarkError`` for a name that is unknown or given twice."""
    for name in names:
        if name not in PEERS:
            raise BenchmarkError(f"unknown peer {name!r}, expected some of {', '.join(PEERS)}")
        if names.count(name) > 1:
            raise BenchmarkError(f"peer {name!r} is given more than once")


def require(package: str, runner: str) -> Any:
    """The package, imported. Raises ``BenchmarkError`` saying how to install it when it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BenchmarkError(
            f"runner {runner!r} needs the package {package!r} ({error});"
            " install the peers with: pip install 'vla_simd_ros[bench]'"
        ) from error


def resolve(factory: str) -> Callable[[Setup], Backend]:
    """The callable that ``module:callable`` names."""
    module, _, name = factory.partition(":")
    made: Callable[[Setup], Backend] = getattr(importlib.import_module(module), name)
    return made
