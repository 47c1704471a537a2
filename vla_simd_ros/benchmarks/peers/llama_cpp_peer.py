"""llama.cpp as a runner, through the package xllamacpp."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from vla_simd_ros.benchmarks.backend import BenchmarkError, Setup, require
from vla_simd_ros.benchmarks.language import DECODE, PREFILL, Prompt

_CONTEXT = 2048
_QUIET = -1


class LlamaCppBackend:
    """A language model that writes the most likely token each time; the times are llama.cpp's own."""

    def __init__(self, setup: Setup) -> None:
        library = require("xllamacpp", "llamacpp")
        params = library.CommonParams()
        params.model.path = setup.checkpoint
        params.n_ctx = _CONTEXT
        params.n_parallel = 1
        params.verbosity = _QUIET
        params.cpuparams.n_threads = setup.threads
        params.cpuparams_batch.n_threads = setup.threads
        self._server = library.Server(params)
        self.details: Mapping[str, str] = {
            "xllamacpp": version("xllamacpp"),
            "compiled_for": str(library.get_system_info()).strip(),
            "threads": str(setup.threads),
        }
        self._spent: dict[str, float] = {}

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """Milliseconds of the last query by stage."""
        return self._spent

    def query(self, prompt: Prompt) -> str:
        """The text behind a prompt."""
        answer = self._complete(
            {
                "prompt": list(prompt.tokens),
                "n_predict": prompt.count,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        timings = answer["timings"]
        read, written = timings["prompt_n"], timings["predicted_n"]
        if (read, written) != (len(prompt.tokens), prompt.count):
            raise BenchmarkError(
                f"llama.cpp read {read} tokens and wrote {written}, expected {len(prompt.tokens)} and"
                f" {prompt.count}"
            )
        # The first token comes out of the prompt's pass.
        self._spent = {
            PREFILL: float(timings["prompt_ms"]),
            DECODE: float(timings["predicted_ms"]) / max(1, prompt.count - 1),
        }
        return str(answer["choices"][0]["text"])

    def _complete(self, request: Mapping[str, Any]) -> Any:
        answer = self._server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        if "timings" not in answer:
            raise BenchmarkError(f"llama.cpp answered {answer}")
        return answer
