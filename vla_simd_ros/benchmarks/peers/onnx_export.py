"""The query program as an ONNX model, for the runtimes that read that format."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vla_simd_ros.benchmarks.backend import require
from vla_simd_ros.benchmarks.peers.query_program import QueryProgram

OPSET = 18
OUTPUT = "action"


@contextmanager
def onnx_model(query: QueryProgram, runner: str) -> Iterator[Path]:
    """A file with the model; it goes with the context."""
    torch = require("torch", runner)
    require("onnxscript", runner)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of what is not installed
    with tempfile.TemporaryDirectory(prefix="vla_simd_bench_") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # and of its own internals
        path = Path(folder) / "query.onnx"
        torch.onnx.export(
            query.module,
            tuple(torch.from_numpy(value) for value in query.examples),
            path,
            input_names=query.argument_names,
            output_names=[OUTPUT],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        yield path
