"""``spiece.model`` files, against the SentencePiece library and against the same model as tokenizer.json."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from small_spiece import corpus, train, train_llama

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.spiece import read_llama_tokenizer, read_sentencepiece_tokenizer
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.checkpoints.tokenizer import Tokenizer, load_tokenizer

INSTRUCTIONS = [
    "Pick up the tape and put it into the box.",
    "  open the   top drawer\n",
    "put\tboth moka pots on the stove",
    "café № ① ﬁne \u2013 “quoted” … \uff46\uff55\uff4c\uff4c",
    "e\u0301 a\u0308 n\u0303",
    "trailing\u00a0space\u2003and\u3000more ",
    "▁ mark",
    "unknown: 漢字 🤖 text",
    "1,234.5 kg (approx.)",
]


@pytest.fixture(scope="module")
def model() -> bytes:
    return train(INSTRUCTIONS, 600, character_coverage=0.999)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: bytes) -> Path:
    folder = tmp_path_factory.mktemp("spiece")
    (folder / "spiece.model").write_bytes(model)
    return folder


@pytest.fixture(scope="module")
def library(model: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer([folder], 1000)


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_same_ids_as_the_library(tokenizer: Tokenizer, library: Any, text: str) -> None:
    assert tokenizer.encode(text) == [*library.encode(text), 1]


words = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789.,:!?'\"()-ßñ"), min_size=1)


@given(st.lists(words, min_size=1), st.sampled_from([" ", "  ", "\n", "\t", "\u00a0"]))
def test_same_ids_as_the_library_for_any_sentence(
    tokenizer: Tokenizer, library: Any, parts: list[str], space: str
) -> None:
    text = space.join(parts)

    assert tokenizer.encode(text) == [*library.encode(text), 1]


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_same_ids_as_tokenizer_json(folder: Path, tokenizer: Tokenizer, tmp_path: Path, text: str) -> None:
    saved = json.loads(read_sentencepiece_tokenizer(folder / "spiece.model").to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved), encoding="utf-8")

    assert load_tokenizer([tmp_path], 1000).encode(text) == tokenizer.encode(text)


def test_sentinels_follow_the_pieces(tokenizer: Tokenizer, library: Any) -> None:
    size = library.get_piece_size()

    assert tokenizer.vocabulary_size == size + 100
    assert tokenizer.encode("<extra_id_0>") == [size + 99, 1]
    assert tokenizer.encode("put <extra_id_99> box")[-1] == 1
    assert size in tokenizer.encode("put <extra_id_99> box")


def test_tokenizer_json_comes_first(folder: Path, tmp_path: Path, model: bytes) -> None:
    (tmp_path / "spiece.model").write_bytes(model)
    (tmp_path / "tokenizer.json").write_text(json.dumps(t5_tokenizer(900)))

    assert load_tokenizer([tmp_path], 32).source.name == "tokenizer.json"


@given(st.data())
def test_broken_files(tmp_path_factory: pytest.TempPathFactory, model: bytes, data: st.DataObject) -> None:
    """Cut anywhere, a model is refused or (cut between two fields) is a smaller one; never another error."""
    path = tmp_path_factory.mktemp("cut") / "spiece.model"
    path.write_bytes(model[: data.draw(st.integers(0, len(model) - 1))])

    try:
        read_sentencepiece_tokenizer(path)
    except CheckpointError as error:
        assert "spiece.model" in str(error)


def test_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "spiece.model"
    path.write_bytes(b"version https://example.org/pointer\n" * 5)

    with pytest.raises(CheckpointError, match=r"spiece.model: not a"):
        read_sentencepiece_tokenizer(path)


def test_another_kind_of_model(tmp_path: Path) -> None:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(corpus()), model_writer=out, vocab_size=300, model_type="bpe", minloglevel=2
    )
    path = tmp_path / "spiece.model"
    path.write_bytes(out.getvalue())

    with pytest.raises(CheckpointError, match=r"model type 2, expected 1 \(unigram\)"):
        read_sentencepiece_tokenizer(path)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A tokenizer.model, and what the library makes of it."""
    proto = train_llama(INSTRUCTIONS, 900)
    path = tmp_path_factory.mktemp("llama") / "tokenizer.model"
    path.write_bytes(proto)
    return path, sentencepiece.SentencePieceProcessor(model_proto=proto)


@pytest.mark.parametrize("text", [*INSTRUCTIONS, "In: What action should the robot take to open it?\nOut:"])
def test_llama_ids_are_those_of_the_library(llama: tuple[Path, Any], text: str) -> None:
    path, library = llama
    tokenizer = load_tokenizer([path.parent], 1000)
    assert tokenizer.encode(text) == library.encode(text)
    assert (tokenizer.word_count, tokenizer.token_id("<s>"), tokenizer.source) == (900, 1, path)


def test_one_kind_of_model_is_not_taken_for_the_other(llama: tuple[Path, Any], folder: Path) -> None:
    path, _ = llama
    with pytest.raises(CheckpointError, match=r"model type 2, expected 1 \(unigram\)"):
        read_sentencepiece_tokenizer(path)
    with pytest.raises(CheckpointError, match=r"model type 1, expected 2 \(byte-pair encoding\)"):
        read_llama_tokenizer(folder / "spiece.model")
