"""A language model of random weights in a GGUF file, with a byte-level tokenizer that knows a few merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

gguf = pytest.importorskip("gguf")

WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS, CONTEXT = 32, 4, 2, 8, 48, 2, 200
MERGES = ["h e", "l l", "he ll", "Ġ w", "o r", "Ġw or"]
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOKENS = [*MARKS, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]

_ADD = {str: "string", list: "array", float: "float32", bool: "bool", int: "uint32"}

FIELDS: dict[str, Any] = {
    "llama.block_count": LAYERS,
    "llama.context_length": CONTEXT,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500.0,
    "llama.rope.dimension_count": HEAD,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3] * len(MARKS) + [1] * (len(TOKENS) - len(MARKS)),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": TEMPLATE,
}


def tensors(seed: int = 0, tied: bool = True) -> dict[str, Any]:
    """Weights by their names in the file."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, cols: int) -> Any:
        return rng.normal(size=(rows, cols)).astype(np.float32) * np.float32(0.4)

    found = {
        "token_embd.weight": matrix(len(TOKENS), WIDTH),
        "output_norm.weight": np.ones(WIDTH, np.float32),
    }
    if not tied:
        found["output.weight"] = matrix(len(TOKENS), WIDTH)
    for i in range(LAYERS):
        shapes = {
            "attn_q": (HEADS * HEAD, WIDTH),
            "attn_k": (KV_HEADS * HEAD, WIDTH),
            "attn_v": (KV_HEADS * HEAD, WIDTH),
            "attn_output": (WIDTH, HEADS * HEAD),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }
        found |= {f"blk.{i}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{i}.{name}.weight"] = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    return found


def write(
    path: Path, weights: dict[str, Any] | None = None, architecture: str = "llama", **changes: Any
) -> Path:
    """A file of ``weights`` with fields that are replaced (None: left out); dots in their names as "__"."""
    fields = FIELDS | {name.replace("__", "."): value for name, value in changes.items()}
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in fields.items():
        if value is not None:
            getattr(writer, f"add_{_ADD[type(value)]}")(key, value)
    for name, tensor in (tensors() if weights is None else weights).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
