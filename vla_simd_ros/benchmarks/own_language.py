"""This engine as a runner of language models."""

from __future__ import annotations

import time
from collections.abc import Mapping

from vla_simd_ros import __version__
from vla_simd_ros.benchmarks.backend import Setup
from vla_simd_ros.benchmarks.language import DECODE, PREFILL, Prompt
from vla_simd_ros.decoding.base import Request
from vla_simd_ros.decoding.decoders import make_decoder
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.language.language_model import LanguageModel


class LanguageBackend:
    """A language model that writes the most likely token each time."""

    def __init__(self, setup: Setup) -> None:
        executor = SimdExecutor(setup.settings)
        language_model = LanguageModel.load(setup.checkpoint, executor)
        self._model, self._tokenizer = language_model.model, language_model.tokenizer
        self._decoder = make_decoder("autoregressive")
        self._spent: dict[str, float] = {}
        self.query(Prompt((0,) * 65, 2))  # the programs of both stages are there from now on
        self.details: Mapping[str, str] = {
            "vla_simd_ros": __version__,
            "isa": executor.isa,
            "threads": str(executor.threads),
            "settings": ", ".join(f"{name}={value}" for name, value in setup.settings.changed().items()),
            **{f"{dtype}_weight_bytes": str(size) for dtype, size in executor.weight_bytes.items() if size},
        }

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """Milliseconds of the last query by stage."""
        return self._spent

    def query(self, prompt: Prompt) -> str:
        """The text behind a prompt."""
        *prefix, last = prompt.tokens
        start = time.perf_counter()
        self._model.begin(prefix)
        begun = time.perf_counter()
        decoded = self._decoder.decode(self._model, Request(last, prompt.count))
        # Around the passes, what chooses their tokens included.
        whole, first = time.perf_counter() - begun, decoded.passes[0].seconds
        self._spent = {
            PREFILL: 1e3 * (begun - start + first),
            DECODE: 1e3 * (whole - first) / max(1, prompt.count - 1),
        }
        return self._tokenizer.decode(decoded.tokens)
