from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_gguf
from tiny_gguf import CONTEXT, HEAD, HEADS, INNER, KV_HEADS, LAYERS, WIDTH

from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.decoding.base import DecodingError, Exit
from vla_simd_ros.decoding.decoders import DECODERS, make_decoder
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.language.language_model import LanguageModel


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write(tmp_path_factory.mktemp("model") / "m.gguf")


def norm(x: Array, weight: Array) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight)


def turned(x: Array, heads: int) -> Array:
    """Neighbouring columns of each head as complex numbers, turned by their position."""
    pairs = x.reshape(len(x), heads, HEAD // 2, 2)
    angles = np.arange(len(x))[:, None] / 500.0 ** (2 * np.arange(HEAD // 2) / HEAD)
    z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)[:, None]
    return np.stack((z.real, z.imag), axis=-1).reshape(len(x), heads, HEAD)


def scores(ids: list[int]) -> Array:
    """Scores of what follows a text, from the weights in the file, in float64 and without any graph."""
    w = {name: value.astype(np.float64) for name, value in tiny_gguf.tensors().items()}
    x = w["token_embd.weight"][ids]
    hidden = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for i in range(LAYERS):
        layer = {name.split(".")[2]: value for name, value in w.items() if name.startswith(f"blk.{i}.")}
        y = norm(x, layer["attn_norm"])
        q, k = turned(y @ layer["attn_q"].T, HEADS), turned(y @ layer["attn_k"].T, KV_HEADS)
        v = (y @ layer["attn_v"].T).reshape(len(ids), KV_HEADS, HEAD)
        found = []
        for h in range(HEADS):
            s = q[:, h] @ k[:, h // 2].T / np.sqrt(HEAD) + hidden
            p = np.exp(s - s.max(axis=1, keepdims=True))
            found.append(p @ v[:, h // 2] / p.sum(axis=1, keepdims=True))
        x = x + np.concatenate(found, axis=1) @ layer["attn_output"].T
        y = norm(x, layer["ffn_norm"])
        gate = y @ layer["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ layer["ffn_up"].T)) @ layer["ffn_down"].T
    assert gate.shape[1] == INNER and x.shape[1] == WIDTH
    return np.asarray(norm(x[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T)


def greedy(ids: list[int], count: int) -> list[int]:
    text = list(ids)
    while len(text) < len(ids) + count and (len(text) == len(ids) or text[-1] != 2):
        text.append(int(np.argmax(scores(text))))
    return text[len(ids) :]


@pytest.mark.parametrize("decoder", DECODERS)
def test_greedy_tokens_are_those_of_the_definition(path: Path, decoder: str) -> None:
    model = LanguageModel.load(path, SimdExecutor(threads=2))
    for text in ("hello world", "o", "12 <|im_start|>"):
        answer = model.complete(text, make_decoder(decoder, block=6, sigma=1.0), 14)
        expected = greedy(model.tokenizer.encode(text), 14)
        assert list(answer.decoded.tokens) == expected
        assert answer.text == model.tokenizer.decode([t for t in expected if t != 2])


def test_scores_are_those_of_the_definition(path: Path) -> None:
    model = LanguageModel.load(path, ReferenceExecutor())
    ids = model.tokenizer.encode("hello world, what now?")
    model.model.begin(ids[:5])
    np.testing.assert_allclose(model.model.scores(ids[5:])[-1], scores(ids), rtol=1e-5, atol=1e-5)


def test_a_conversation_is_answered(path: Path) -> None:
    model = LanguageModel.load(path, SimdExecutor(threads=1), context=60)
    messages = [{"role": "user", "content": "hi"}]
    decoder = make_decoder("autoregressive")
    answer = model.chat(messages, decoder, 5)
    assert answer == model.complete(model.tokenizer.conversation(messages), decoder, 5) or answer.text
    assert answer.decoded.exit in (Exit.COMPLETE, Exit.STOP_TOKEN)


def test_what_does_not_fit_is_refused_and_the_model_lives_on(path: Path) -> None:
    model = LanguageModel.load(path, SimdExecutor(threads=1), context=20)
    decoder = make_decoder("autoregressive")
    with pytest.raises(DecodingError, match="the text has no tokens, expected at least one"):
        model.complete("", decoder, 5)
    with pytest.raises(DecodingError, match="24 tokens after 0, expected no more than the context of 20"):
        model.complete("o" * 25, decoder, 5)
    with pytest.raises(DecodingError, match="15 tokens to decode, expected no more than the 11"):
        model.complete("o" * 10, decoder, 15)
    assert len(model.complete("o" * 10, decoder, 11).decoded.tokens) <= 11


def test_weights_that_are_no_numbers_are_found_out(tmp_path: Path) -> None:
    weights = tiny_gguf.tensors()
    # Each value is finite, and what is computed from them is not.
    weights["output_norm.weight"] = np.full(WIDTH, 3e38, np.float32)
    weights["token_embd.weight"] *= np.float32(1e10)
    model = LanguageModel.load(tiny_gguf.write(tmp_path / "m.gguf", weights), SimdExecutor(threads=1))
    with pytest.raises(DecodingError, match="the scores of token 0 are not finite"):
        model.complete("o", make_decoder("jacobi", block=4), 8)


def test_the_command_prints_the_answer(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = [str(path), "--prompt", "hello", "--raw", "--max-tokens", "8", "--threads", "1"]
    texts = set()
    for decoder in ("autoregressive", "jacobi"):
        assert main(["generate", *common, "--decoder", decoder, "--block", "4"]) == 0
        printed = capsys.readouterr()
        texts.add(printed.out)
        assert printed.err.startswith(f"{decoder}: ") and "tokens/s" in printed.err
    assert len(texts) == 1


def test_the_command_explains_what_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["generate", str(path), "--prompt", "hello"]
    for arguments, message in (
        (["--context", str(CONTEXT + 1)], f"context of {CONTEXT + 1} tokens, expected up to {CONTEXT}"),
        (["--max-tokens", str(CONTEXT)], f"{CONTEXT} tokens to decode, expected no more than"),
        (["--decoder", "early_exit", "--sigma", "0"], "sigma is 0, expected a probability above 0"),
    ):
        assert main([*common, *arguments]) == 2
        assert message in capsys.readouterr().err
