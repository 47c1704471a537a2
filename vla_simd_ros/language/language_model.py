"""A language model ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vla_simd_ros.checkpoints.gguf import GgufFile
from vla_simd_ros.decoding.base import Decoded, Decoder, DecodingError, Request
from vla_simd_ros.decoding.cached_model import CachedModel
from vla_simd_ros.executors.base import Executable, Executor
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.language.gguf_llama import GgufLlamaWeights, read_config
from vla_simd_ros.language.gguf_tokenizer import GgufTokenizer
from vla_simd_ros.language.llama_model import LlamaModel
from vla_simd_ros.policies.weights import Weights

DEFAULT_CONTEXT = 2048


@dataclass(frozen=True)
class Generated:
    """An answer: its text, and how its tokens came about."""

    text: str
    decoded: Decoded


class LanguageModel:
    """A model and its tokenizer; use it from one thread at a time."""

    def __init__(self, model: LlamaModel, tokenizer: GgufTokenizer, executor: Executor) -> None:
        self.tokenizer = tokenizer
        self._graphs = model
        self._executor = executor
        self._fold_cache = FoldCache()
        self._executables: dict[int, Executable] = {}
        self.model = CachedModel(self._executable, model.config.context, model.config.vocabulary)
        """What decoders work on."""

    @classmethod
    def load(cls, path: str | Path, executor: Executor, context: int = 0) -> LanguageModel:
        """Load a GGUF file, for a context of ``context`` tokens (0: 2048, or as many as the model takes).

        Raises CheckpointError for a file of another architecture or one whose parts do not fit together.
        """
        file = GgufFile(path)
        if context == 0:
            context = min(read_config(file).context, DEFAULT_CONTEXT)
        model = LlamaModel(read_config(file, context), Weights(GgufLlamaWeights(file)))
        return cls(model, GgufTokenizer(file), executor)

    def chat(self, messages: Sequence[Mapping[str, str]], decoder: Decoder, max_tokens: int) -> Generated:
        """The answer to a conversation."""
        return self.complete(self.tokenizer.conversation(messages), decoder, max_tokens)

    def complete(self, text: str, decoder: Decoder, max_tokens: int) -> Generated:
        """What follows ``text``, up to ``max_tokens`` tokens. Raises DecodingError for a text without tokens,
        and where the context has no room."""
        ids = self.tokenizer.encode(text)
        if not ids:
            raise DecodingError("the text has no tokens, expected at least one")
        *prefix, last = ids
        self.model.begin(prefix)
        ends = self.tokenizer.ends
        decoded = decoder.decode(self.model, Request(last, max_tokens, ends))
        return Generated(self.tokenizer.decode([t for t in decoded.tokens if t not in ends]), decoded)

    def _executable(self, rows: int) -> Executable:
        """The programs for passes of ``rows`` tokens, compiled when they are first needed."""
        if rows not in self._executables:
            compiled = compile_graph(self._graphs.build(rows), self._fold_cache)
            beside = next(iter(self._executables.values()), None)
            self._executables[rows] = self._executor.load(compiled, beside)
        return self._executables[rows]
