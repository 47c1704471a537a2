"""ExecuTorch on the CPU, through its XNNPACK delegate."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.query_program import QueryProgram, load_query_program

if TYPE_CHECKING:
    from vla_simd_ros.inference import Observation

_NAME = "executorch"


class ExecuTorchBackend:
    """The query program lowered to XNNPACK as far as it takes it, on ExecuTorch's own thread pool."""

    def __init__(self, setup: Setup) -> None:
        version = require("executorch.version", _NAME).__version__
        runtime = require("executorch.runtime", _NAME).Runtime.get()
        pool = require("executorch.extension.pybindings.portable_lib", _NAME)
        self._torch = require("torch", _NAME)
        self._program = load_query_program(setup, _NAME)
        # The runtime reads the weights where they are in the buffer, which therefore stays.
        self._buffer = _lower(self._torch, self._program)
        # Before anything is loaded: a loaded method keeps the pool that it found.
        pool._unsafe_reset_threadpool(setup.threads)
        self._loaded = runtime.load_program(self._buffer)
        self._method = self._loaded.load_method("forward")
        self.details = {"executorch": version, "threads": str(pool._threadpool_get_thread_count())}

    def query(self, observation: Observation) -> npt.NDArray[np.float32]:
        arguments = [self._torch.from_numpy(value) for value in self._program.arguments(observation)]
        actions: npt.NDArray[np.float32] = self._method.execute(arguments)[0].numpy()
        return actions


def _lower(torch: Any, program: QueryProgram) -> bytes:
    """The program in ExecuTorch's format."""
    partitioner = require("executorch.backends.xnnpack.partition.xnnpack_partitioner", _NAME)
    exir = require("executorch.exir", _NAME)
    examples = tuple(torch.from_numpy(value) for value in program.examples)
    attention = torch.ops.aten.scaled_dot_product_attention.default
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own internals
        exported = torch.export.export(program.module, examples)
        # PyTorch's own decomposition guards against rows without any key, in operations that XNNPACK does not
        # take: attention would be several times as slow.
        exported = exported.run_decompositions({attention: _attention})
        lowered = exir.to_edge_transform_and_lower(exported, partitioner=[partitioner.XnnpackPartitioner()])
        buffer: bytes = lowered.to_executorch().buffer
    return buffer


def _attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float,
    enable_gqa: bool = False,
) -> Any:
    """Attention in matrix products and a softmax; the query program uses neither dropout nor causal masks."""
    scores = (q * scale).matmul(k.transpose(-2, -1))
    if attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1).matmul(v)
