"""A program as an ONNX model, for the runtimes that read that format."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vla_simd_ros.benchmarks.backend import require
from vla_simd_ros.benchmarks.peers.policy_programs import PeerProgram

OPSET = 18


@contextmanager
def onnx_model(program: PeerProgram, runner: str) -> Iterator[Path]:
    """A file with the model; it goes with the context."""
    torch = require("torch", runner)
    require("onnxscript", runner)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of what is not installed
    with tempfile.TemporaryDirectory(prefix="vla_simd_bench_") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # and of its own internals
        path = Path(folder) / f"{program.name}.onnx"
        torch.onnx.export(
            program.module,
            tuple(torch.from_numpy(value) for value in program.examples),
            path,
            input_names=list(program.arguments),
            output_names=list(program.results),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        yield path
