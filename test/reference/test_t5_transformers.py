"""The PyTorch T5 encoder and the tokenizers against the transformers library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_spiece import train
from transformers import AutoTokenizer, T5Config, T5EncoderModel, T5Tokenizer

from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.checkpoints.tokenizer import load_tokenizer
from vla_simd_ros.training.t5 import T5Config as OurConfig
from vla_simd_ros.training.t5 import T5Encoder

INSTRUCTIONS = [
    "Put the tape into the box.",
    "  open   the top\tdrawer\n",
    "caf\u00e9 cafe\u0301 \ufb01ne \u2460 \u2116 \uff46\uff55\uff4c\uff4c",
    "unknown \u6f22\u5b57 \U0001f916 text",
    "<extra_id_0> and <extra_id_99> </s> <pad>",
    "no\u00a0break\u3000wide \u200b zero",
    "control \x01\x02 characters \u200e",
    "a " * 60,
    "\u2581 the mark itself",
    "UPPER lower 0123456789 !\"#$%&'()*+,-./:;<=>?@[]^_`{|}~",
]


@pytest.mark.parametrize("length", [1, 7, 32])
def test_encoder_has_the_states_of_transformers(length: int) -> None:
    torch.manual_seed(length)
    ours = T5Encoder(OurConfig()).double().eval()
    theirs = T5EncoderModel(T5Config(**transformers_sizes())).double().eval()
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert unexpected == []
    assert set(missing) <= {"encoder.embed_tokens.weight"}

    ids = torch.randint(3, 32000, (2, 32))
    mask = torch.arange(32)[None, :] < torch.tensor([[length], [32]])
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        states = ours(ids, mask)
    # transformers takes the mean squares of its norms in float32 whatever the precision of the rest.
    torch.testing.assert_close(states[mask], expected[mask], rtol=0, atol=3e-6)


def transformers_sizes() -> dict[str, Any]:
    sizes = OurConfig()
    return {
        "d_model": sizes.d_model,
        "d_kv": sizes.d_kv,
        "d_ff": sizes.d_ff,
        "num_layers": sizes.num_layers,
        "num_heads": sizes.num_heads,
        "vocab_size": sizes.vocab_size,
        "feed_forward_proj": "relu",
    }


@pytest.fixture(scope="module")
def json_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    (folder / "tokenizer.json").write_text(json.dumps(t5_tokenizer(32128)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.fixture(scope="module")
def spiece_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spiece")
    (folder / "spiece.model").write_bytes(train(INSTRUCTIONS, 600))
    return folder


@pytest.mark.parametrize("length", [5, 32, 200])
@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_ids_from_tokenizer_json(json_folder: Path, text: str, length: int) -> None:
    theirs = AutoTokenizer.from_pretrained(json_folder)

    expected = theirs(text, truncation=True, max_length=length)["input_ids"]
    assert load_tokenizer([json_folder], length).encode(text) == expected


@pytest.mark.parametrize("length", [5, 32, 200])
@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_ids_from_spiece_model(spiece_folder: Path, text: str, length: int) -> None:
    theirs = T5Tokenizer.from_pretrained(spiece_folder, local_files_only=True)

    expected = theirs(text, truncation=True, max_length=length)["input_ids"]
    assert load_tokenizer([spiece_folder], length).encode(text) == expected
