"""A Llama model in a GGUF file: its sizes from the metadata, its weights by the names of the transformers
library.

The converters that write these files change the order of the rows of query and key weights, so that rotary
positions turn neighbouring columns where they turned halves of a head before.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.gguf import GgufFile
from vla_simd_ros.graph.blocks import Blocks
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.language.llama_model import LlamaModelConfig
from vla_simd_ros.policies.blocks.llama import BASE, LlamaConfig

ARCHITECTURE = "llama"

_OUTPUT = "output.weight"
_STRETCH = "rope_freqs.weight"
_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def read_config(file: GgufFile, context: int = 0) -> LlamaModelConfig:
    """The sizes of the model, for a context of ``context`` tokens (0: as many as it was trained for).

    Raises CheckpointError for another architecture, sizes that do not fit together, a kind of positions that
    is not known, and a longer context than the model's.
    """
    architecture = file.field("general.architecture", str)
    if architecture != ARCHITECTURE:
        raise CheckpointError(f"{file.path}: architecture '{architecture}', expected '{ARCHITECTURE}'")
    tokens = len(file.field("tokenizer.ggml.tokens", list))
    vocabulary = file.shape("token_embd.weight")[0]
    if tokens != vocabulary:
        raise CheckpointError(
            f"{file.path}: the tokenizer has {tokens} tokens, expected the {vocabulary} that the model has"
        )
    longest = _size(file, "context_length")
    if not 0 <= context <= longest:
        raise CheckpointError(f"{file.path}: context of {context} tokens, expected up to {longest}")
    return LlamaModelConfig(
        layer=_layer(file),
        layers=_size(file, "block_count"),
        vocabulary=vocabulary,
        context=context or longest,
        tied=_OUTPUT not in file.names,
    )


def _layer(file: GgufFile) -> LlamaConfig:
    width, heads = _size(file, "embedding_length"), _size(file, "attention.head_count")
    kv_heads = _size(file, "attention.head_count_kv", heads)
    head = _size(file, "attention.key_length", width // heads)
    turned = _size(file, "rope.dimension_count", head)
    if heads % kv_heads or turned != head or head % 2:
        raise CheckpointError(
            f"{file.path}: {heads} heads of {head} over {kv_heads}, of which {turned} columns turn; expected "
            "a multiple of the key-value heads, and an even number of columns that all turn"
        )
    return LlamaConfig(
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        feedforward=_size(file, "feed_forward_length"),
        eps=_number(file, "attention.layer_norm_rms_epsilon"),
        base=_number(file, "rope.freq_base", BASE),
        interleaved=True,
        stretch=_stretch(file, head),
    )


def _stretch(file: GgufFile, head: int) -> tuple[float, ...]:
    """By how much the wavelengths are longer: all alike, each by its own factor, or not at all."""
    if _STRETCH in file.names:
        return tuple(float(value) for value in file.tensor(_STRETCH, (head // 2,)))
    kind = file.fields.get(f"{ARCHITECTURE}.rope.scaling.type", "none")
    if kind == "none":
        return ()
    if kind != "linear":
        raise CheckpointError(f"{file.path}: positions scaled by '{kind}', expected none or linear")
    return (_number(file, "rope.scaling.factor"),) * (head // 2)


def _size(file: GgufFile, key: str, default: int | None = None) -> int:
    name = f"{ARCHITECTURE}.{key}"
    if default is not None and name not in file.fields:
        return default
    value: int = file.field(name, int)
    if value < 1:
        raise CheckpointError(f"{file.path}: field '{name}' is {value}, expected 1 or more")
    return value


def _number(file: GgufFile, key: str, default: float | None = None) -> float:
    name = f"{ARCHITECTURE}.{key}"
    if default is not None and name not in file.fields:
        return default
    value: float = file.field(name, float)
    if not (np.isfinite(value) and value > 0):
        raise CheckpointError(f"{file.path}: field '{name}' is {value}, expected a number above 0")
    return value


class GgufLlamaWeights:
    """The tensors of a file by the names that :class:`~vla_simd_ros.language.llama_model.LlamaModel` uses."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    @property
    def path(self) -> Path:
        """Where they are stored."""
        return self._file.path

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """See :class:`vla_simd_ros.policies.weights.BlockSource`, for this and the others."""
        return self._file.shape(stored_name(name), expected)

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        return self._file.tensor(stored_name(name), shape)

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self._file.rows(stored_name(name), start, stop)

    def mapped(self, name: str) -> Array:
        return self._file.mapped(stored_name(name))

    def check_mapped(self) -> None:
        self._file.check_mapped()

    def block_form(self, name: str) -> str | None:
        return self._file.block_form(stored_name(name))

    def blocks(self, name: str) -> Blocks | None:
        return self._file.blocks(stored_name(name))


def stored_name(name: str) -> str:
    """The name in a GGUF file of "layers.3.mlp.up_proj.weight" and the like."""
    module, _, leaf = name.rpartition(".")
    if module in _NAMES:
        return f"{_NAMES[module]}.{leaf}"
    _, index, part = module.split(".", 2)
    return f"blk.{index}.{_LAYER_NAMES[part]}.{leaf}"
