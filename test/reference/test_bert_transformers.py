"""BERT's tokenization against the transformers library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import TOKENIZER_SETTINGS, bert_tokenizer
from vla_simd_ros.checkpoints.tokenizer import load_tokenizer

INSTRUCTIONS = [
    "Put the tape into the box.",
    "  open   the top\tdrawer\n",
    "caf\u00e9 cafe\u0301 \ufb01ne \u2460 \uff46\uff55\uff4c\uff4c",
    "unknown \u6f22\u5b57 \U0001f916 text",
    "[MASK] and [SEP] [CLS] [PAD] [UNK]",
    "no\u00a0break\u3000wide \u200b zero",
    "control \x01\x02 characters \u200e",
    "a " * 60,
    "unbraidably re-stacked, isn't it?",
    "UPPER lower 0123456789 !\"#$%&'()*+,-./:;<=>?@[]^_`{|}~",
    "x" * 150,
    "",
]


def write(folder: Path, form: str, settings: dict[str, Any]) -> Path:
    content = bert_tokenizer(900)
    if form == "vocab.txt":
        (folder / form).write_text("\n".join(content["model"]["vocab"]) + "\n", encoding="utf-8")
    else:
        (folder / form).write_text(json.dumps(content), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return folder


@pytest.mark.parametrize("length", [2, 5, 32, 200])
@pytest.mark.parametrize("text", INSTRUCTIONS)
@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.txt"])
def test_ids(tmp_path: Path, form: str, text: str, length: int) -> None:
    folder = write(tmp_path, form, TOKENIZER_SETTINGS)
    theirs = AutoTokenizer.from_pretrained(folder)

    expected = theirs(text, truncation=True, max_length=length)["input_ids"]
    assert load_tokenizer([folder], length).encode(text) == expected


@pytest.mark.parametrize(
    "settings", [{"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
)
@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_settings_of_a_vocabulary(tmp_path: Path, settings: dict[str, bool], text: str) -> None:
    folder = write(tmp_path, "vocab.txt", {**TOKENIZER_SETTINGS, **settings})
    theirs = AutoTokenizer.from_pretrained(folder)

    assert (
        load_tokenizer([folder], 64).encode(text) == theirs(text, truncation=True, max_length=64)["input_ids"]
    )
