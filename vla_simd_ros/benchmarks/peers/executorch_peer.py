"""ExecuTorch on the CPU, through its XNNPACK delegate."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup, require
from vla_simd_ros.benchmarks.peers.peer_executable import PeerExecutable
from vla_simd_ros.benchmarks.peers.policy_programs import PeerProgram, load_policy_programs
from vla_simd_ros.benchmarks.peers.torch_peer import TorchProgram

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case

_NAME = "executorch"


class ExecuTorchBackend:
    """The programs lowered to XNNPACK as far as it takes them, on ExecuTorch's own thread pool."""

    def __init__(self, setup: Setup) -> None:
        version = require("executorch.version", _NAME).__version__
        runtime = require("executorch.runtime", _NAME).Runtime.get()
        pool = require("executorch.extension.pybindings.portable_lib", _NAME)
        torch = require("torch", _NAME)
        programs = load_policy_programs(setup, _NAME)
        # The runtime reads the weights where they are in the buffers, which therefore stay.
        self._buffers: list[bytes] = []
        # Before anything is loaded: a loaded method keeps the pool that it found.
        pool._unsafe_reset_threadpool(setup.threads)

        def load(program: PeerProgram) -> TorchProgram:
            self._buffers.append(_lower(torch, program))
            method = runtime.load_program(self._buffers[-1]).load_method("forward")
            return TorchProgram(torch, lambda *arguments: method.execute(arguments), program)

        self._executable = PeerExecutable(programs, load)
        self.details = {"executorch": version, "threads": str(pool._threadpool_get_thread_count())}

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """See :class:`vla_simd_ros.benchmarks.backend.Staged`."""
        return self._executable.spent_ms

    def query(self, case: Case) -> npt.NDArray[np.float32]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        return self._executable.answer(case)


def _lower(torch: Any, program: PeerProgram) -> bytes:
    """The program in ExecuTorch's format."""
    partitioner = require("executorch.backends.xnnpack.partition.xnnpack_partitioner", _NAME)
    exir = require("executorch.exir", _NAME)
    passes = require("executorch.exir.passes", _NAME)
    examples = tuple(torch.from_numpy(value) for value in program.examples)
    replaced = {
        torch.ops.aten.scaled_dot_product_attention.default: _attention,
        torch.ops.aten.group_norm.default: _group_norm,
    }
    # Arguments and results are not copied into memory of its own.
    planning = passes.MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own internals
        exported = torch.export.export(program.module, examples)
        # PyTorch's own decomposition guards against rows without any key, in operations that XNNPACK does not
        # take: attention would be several times as slow. ExecuTorch's own group norm takes the variance as a
        # difference of two sums, which loses half of the digits, as XNNPACK's GELU does that is made of tanh.
        gelu = torch.ops.aten.gelu.default
        if any(n.target is gelu and n.kwargs.get("approximate") == "tanh" for n in exported.graph.nodes):
            replaced[gelu] = _gelu
        exported = exported.run_decompositions(replaced)
        lowered = exir.to_edge_transform_and_lower(exported, partitioner=[partitioner.XnnpackPartitioner()])
        buffer: bytes = lowered.to_executorch(
            exir.ExecutorchBackendConfig(memory_planning_pass=planning)
        ).buffer
    return buffer


def _group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    """Group norm [1, C, ...] in means of values and of squared deviations."""
    grouped = x.reshape(1, groups, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    scaled = centred * ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    per_channel = (1, -1, *(1 for _ in x.shape[2:]))
    return scaled.reshape(x.shape) * weight.reshape(per_channel) + bias.reshape(per_channel)


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    """GELU as it is defined, by the error function or by tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


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
