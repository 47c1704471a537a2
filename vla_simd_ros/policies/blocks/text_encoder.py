"""The frozen text encoder of a policy: T5 or BERT, as the checkpoint says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.blocks import bert
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.blocks.t5 import embedding_name, read_t5_config, t5_encoder
from vla_simd_ros.policies.weights import Weights

PREFIX = "model.text.model."
_T5_TYPE = "t5"


class TextEncoder(Protocol):
    """Turns token ids into states, one for each token."""

    @property
    def width(self) -> int:
        """Width of a state."""
        ...

    def build(self, b: Builder, ids: Tensor) -> Tensor:
        """The last hidden states [n, width] of the token ids [n]."""
        ...

    def check_stored(self) -> None:
        """Raise CheckpointError if stored weights are still needed and were changed."""
        ...


class _T5:
    def __init__(self, weights: Weights, names: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
        self._weights = weights
        self._config = read_t5_config(weights, names, stated)
        self._embedding = embedding_name(names)
        self.width = self._config.width
        self.check_stored = weights.check_mapped

    def build(self, b: Builder, ids: Tensor) -> Tensor:
        return t5_encoder(b, ids, self._config, self._weights, self._embedding)


class _Bert:
    def __init__(self, weights: Weights, stated: Stated, longest: int) -> None:
        self._weights = weights
        self._config = bert.read_bert_config(stated)
        if self._config.positions < longest:
            raise stated.misfit(
                "max_position_embeddings",
                self._config.positions,
                f"{longest} (the longest instruction) or more",
            )
        self.width = self._config.width
        self.check_stored = weights.check_mapped

    def build(self, b: Builder, ids: Tensor) -> Tensor:
        return bert.bert_encoder(b, ids, self._config, self._weights)


def read_text_encoder(checkpoint: Checkpoint, longest: int) -> TextEncoder:
    """The encoder for instructions of up to ``longest`` tokens, by ``text_config.model_type`` (T5 where
    nothing is said). Raises CheckpointError for another kind, and for what does not fit.

    The encoder is frozen in training, so it may have been left out of the weights and kept beside them.
    """
    inside = {name[len(PREFIX) :]: None for name in checkpoint.tensors if name.startswith(PREFIX)}
    if inside:
        stated = checkpoint.option("text_config", dict, {})
        names, weights = inside, Weights(checkpoint.weights, PREFIX)
    else:
        stated, beside = checkpoint.text_encoder()
        names, weights = dict.fromkeys(beside), Weights(beside)
    kind = stated.get("model_type", _T5_TYPE)
    if kind == bert.MODEL_TYPE:
        return _Bert(weights, Stated(stated, "text encoder"), longest)
    if kind != _T5_TYPE:
        raise CheckpointError(
            f"text encoder: model_type is {kind!r}, expected '{_T5_TYPE}' or '{bert.MODEL_TYPE}'"
        )
    return _T5(weights, names, stated)
