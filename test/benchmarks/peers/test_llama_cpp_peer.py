from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "language"))
pytest.importorskip("gguf")
pytest.importorskip("xllamacpp")

import tiny_gguf

from vla_simd_ros.benchmarks.backend import Setup
from vla_simd_ros.benchmarks.language import DECODE, PREFILL
from vla_simd_ros.benchmarks.language_prompts import make_prompts
from vla_simd_ros.benchmarks.own_language import LanguageBackend
from vla_simd_ros.benchmarks.peers.llama_cpp_peer import LlamaCppBackend
from vla_simd_ros.executors.settings import EngineSettings

pytestmark = pytest.mark.needs_torch  # of the group of packages that has the peers


def test_it_writes_what_this_engine_writes(tmp_path: Path) -> None:
    """Of float32 weights; it keeps keys and values in float16, so that longer texts may part."""
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    setup = Setup(str(path), "", EngineSettings(threads=1))
    ours, theirs = LanguageBackend(setup), LlamaCppBackend(setup)
    for prompt in make_prompts(path, 3, 30, 2):
        assert theirs.query(prompt) == ours.query(prompt)
        assert all(backend.spent_ms[stage] > 0 for backend in (ours, theirs) for stage in (PREFILL, DECODE))
