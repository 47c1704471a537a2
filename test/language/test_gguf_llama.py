from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gguf
from tiny_gguf import CONTEXT, HEAD, HEADS, KV_HEADS, TOKENS, WIDTH

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.gguf import GgufFile
from vla_simd_ros.language.gguf_llama import GgufLlamaWeights, read_config, stored_name


def test_sizes_come_from_the_file(tmp_path: Path) -> None:
    config = read_config(GgufFile(tiny_gguf.write(tmp_path / "m.gguf")))
    layer = config.layer
    assert (layer.width, layer.heads, layer.kv_heads, layer.head) == (WIDTH, HEADS, KV_HEADS, HEAD)
    assert (layer.base, layer.interleaved, layer.stretch) == (500.0, True, ())
    assert (config.layers, config.vocabulary, config.context, config.tied) == (2, len(TOKENS), CONTEXT, True)
    assert read_config(GgufFile(tmp_path / "m.gguf"), 50).context == 50


def test_what_a_file_may_leave_out(tmp_path: Path) -> None:
    weights = tiny_gguf.tensors(tied=False)
    for i in range(2):
        for name in ("attn_k", "attn_v"):
            weights[f"blk.{i}.{name}.weight"] = np.zeros((WIDTH, WIDTH), np.float32)
    left_out = {"llama__attention__head_count_kv": None, "llama__rope__freq_base": None}
    config = read_config(GgufFile(tiny_gguf.write(tmp_path / "m.gguf", weights, **left_out)))
    assert (config.layer.kv_heads, config.layer.base, config.tied) == (HEADS, 10000.0, False)


def test_positions_may_be_stretched(tmp_path: Path) -> None:
    linear = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    path = tiny_gguf.write(tmp_path / "linear.gguf", **linear)
    assert read_config(GgufFile(path)).layer.stretch == (4.0,) * 4
    factors = np.array([1, 1.5, 4, 8], np.float32)
    path = tiny_gguf.write(tmp_path / "each.gguf", tiny_gguf.tensors() | {"rope_freqs.weight": factors})
    assert read_config(GgufFile(path)).layer.stretch == (1.0, 1.5, 4.0, 8.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gemma"}, "architecture 'gemma', expected 'llama'"),
        (
            {"tokenizer__ggml__tokens": TOKENS[:-1]},
            f"has {len(TOKENS) - 1} tokens, expected the {len(TOKENS)}",
        ),
        ({"llama__block_count": 0}, "'llama.block_count' is 0, expected 1 or more"),
        ({"llama__embedding_length": None}, "'llama.embedding_length' is missing"),
        ({"llama__attention__head_count_kv": 3}, "4 heads of 8 over 3"),
        ({"llama__rope__dimension_count": 4}, "of which 4 columns turn"),
        ({"llama__rope__freq_base": float("nan")}, "is nan, expected a number above 0"),
        ({"llama__rope__scaling__type": "yarn"}, "positions scaled by 'yarn', expected none or linear"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tiny_gguf.write(tmp_path / "m.gguf", **changes)
    with pytest.raises(CheckpointError, match=message) as error:
        read_config(GgufFile(path))
    assert str(path) in str(error.value)


def test_the_context_has_a_limit(tmp_path: Path) -> None:
    file = GgufFile(tiny_gguf.write(tmp_path / "m.gguf"))
    with pytest.raises(CheckpointError, match=f"context of {CONTEXT + 1} tokens, expected up to {CONTEXT}"):
        read_config(file, CONTEXT + 1)


def test_weights_go_by_the_names_of_layers(tmp_path: Path) -> None:
    stored = tiny_gguf.tensors()
    weights = GgufLlamaWeights(GgufFile(tiny_gguf.write(tmp_path / "m.gguf", stored)))
    for name, of in (
        ("embed_tokens.weight", "token_embd.weight"),
        ("norm.weight", "output_norm.weight"),
        ("layers.1.self_attn.o_proj.weight", "blk.1.attn_output.weight"),
        ("layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
        ("layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
    ):
        assert stored_name(name) == of
        assert weights.shape(name) == stored[of].shape
        np.testing.assert_array_equal(weights.tensor(name), stored[of])
    np.testing.assert_array_equal(weights.rows("embed_tokens.weight", 3, 5), stored["token_embd.weight"][3:5])
