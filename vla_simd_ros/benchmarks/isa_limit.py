"""Holding other runtimes to an instruction set below the best of this CPU."""

from __future__ import annotations

from collections.abc import Mapping

from vla_simd_ros.benchmarks.backend import BenchmarkError

# What PyTorch reads when it is loaded: oneDNN, its own kernels, and MKL. The convolutions of OpenVINO, which
# are oneDNN's, obey too; its matrix products and ONNX Runtime do not, but copies of both that
# scripts/hold_peers.py makes can be held. XNNPACK (in ExecuTorch) has no such setting.
_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}


def limiting_variables(isa: str) -> Mapping[str, str]:
    """Environment variables that hold a runtime to ``isa`` where it allows that. Raises ``BenchmarkError``
    for an instruction set that none can be held to."""
    if isa not in _VARIABLES:
        expected = ", ".join(_VARIABLES)
        raise BenchmarkError(f"peers cannot be held to '{isa}', expected --isa {expected} with --hold-peers")
    return _VARIABLES[isa]
