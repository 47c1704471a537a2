"""BERT tokenization: from tokenizer.json and from vocab.txt, against a plain search for the longest piece."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import bert_tokenizer
from vla_simd_ros.checkpoints.tokenizer import Tokenizer, load_tokenizer

SIZE = 900
TEXTS = [
    "put the tape into the box",
    "Put the TAPE into the box.",
    "  open   the top\tdrawer\n",
    "caf\u00e9 cafe\u0301",
    "unbraidably re-stacked, isn't it?",
    "漢字 in 2 places",
    "[MASK] and [SEP] in the text",
    "control \x01 characters \u200e",
    "x" * 101,
    "",
]


def write_json(folder: Path) -> dict[str, int]:
    content = bert_tokenizer(SIZE)
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    vocabulary: dict[str, int] = content["model"]["vocab"]
    return vocabulary


def write_vocabulary(folder: Path, tokens: list[str], **settings: Any) -> None:
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer, dict[str, int]]:
    folder = tmp_path_factory.mktemp("wordpiece")
    vocabulary = write_json(folder / "json")
    write_vocabulary(folder, list(vocabulary))
    return load_tokenizer([folder / "json"], 32), load_tokenizer([folder], 32), vocabulary


def longest_pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    ids, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        ends = [end for end in range(len(word), start, -1) if mark + word[start:end] in vocabulary]
        if not ends:
            return [vocabulary["[UNK]"]]
        ids.append(vocabulary[mark + word[start : ends[0]]])
        start = ends[0]
    return ids


@pytest.mark.parametrize("text", TEXTS)
def test_vocabulary_and_json_agree(both: tuple[Tokenizer, Tokenizer, dict[str, int]], text: str) -> None:
    assert both[0].encode(text) == both[1].encode(text)


@pytest.mark.parametrize("text", ["put the tape into the box", "gripperly unbraidable stackment"])
def test_words_are_cut_at_the_longest_piece(
    both: tuple[Tokenizer, Tokenizer, dict[str, int]], text: str
) -> None:
    tokenizer, _, vocabulary = both
    pieces = [i for word in text.split() for i in longest_pieces(word, vocabulary)]
    assert tokenizer.encode(text) == [vocabulary["[CLS]"], *pieces, vocabulary["[SEP]"]]


def test_case_accents_and_punctuation(both: tuple[Tokenizer, Tokenizer, dict[str, int]]) -> None:
    tokenizer, _, vocabulary = both
    assert tokenizer.encode("Put, TAPE") == tokenizer.encode("put , tape")
    assert tokenizer.encode("caf\u00e9") == tokenizer.encode("cafe")
    assert tokenizer.encode("漢字")[1:-1] == [vocabulary["[UNK]"]] * 2
    assert tokenizer.vocabulary_size == SIZE


def test_an_empty_text_is_its_marks(both: tuple[Tokenizer, Tokenizer, dict[str, int]]) -> None:
    tokenizer, _, vocabulary = both
    assert tokenizer.encode(" \n") == [vocabulary["[CLS]"], vocabulary["[SEP]"]]


def test_truncation_keeps_the_marks(tmp_path: Path) -> None:
    vocabulary = write_json(tmp_path)
    tokenizer = load_tokenizer([tmp_path], 5)
    long, exact = (tokenizer.tokenize(text) for text in ("put the red tape into it", "put the red"))
    assert (long.truncated, exact.truncated) == (True, False)
    assert long.ids == exact.ids
    assert (long.ids[0], long.ids[-1]) == (vocabulary["[CLS]"], vocabulary["[SEP]"])


def test_case_is_kept_where_the_folder_says_so(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Put", "put"]
    write_vocabulary(tmp_path, tokens, do_lower_case=False)
    assert load_tokenizer([tmp_path], 8).encode("Put put") == [2, 5, 6, 3]
    write_vocabulary(tmp_path, tokens, do_lower_case=True)
    assert load_tokenizer([tmp_path], 8).encode("Put put") == [2, 6, 6, 3]


@pytest.mark.parametrize(
    ("tokens", "settings", "complaint"),
    [
        (["[CLS]", "[SEP]", "a"], {}, r"vocab\.txt: has no token '\[UNK\]'"),
        (["[UNK]", "[CLS]", "a"], {}, r"vocab\.txt: has no token '\[SEP\]'"),
        (["[UNK]", "[CLS]", "[SEP]"], {"do_lower_case": "yes"}, "'do_lower_case' is a string"),
    ],
)
def test_broken_files(tmp_path: Path, tokens: list[str], settings: dict[str, Any], complaint: str) -> None:
    write_vocabulary(tmp_path, tokens, **settings)
    with pytest.raises(CheckpointError, match=complaint):
        load_tokenizer([tmp_path], 8)


def test_a_vocabulary_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: cannot be read"):
        load_tokenizer([tmp_path], 8)


def test_no_room_for_the_marks(tmp_path: Path) -> None:
    write_json(tmp_path)
    with pytest.raises(CheckpointError, match=r"1 tokens, expected at least 2, \[CLS\] and \[SEP\] included"):
        load_tokenizer([tmp_path], 1)


@pytest.mark.parametrize("size", [60, 200_000])
def test_a_vocabulary_of_a_size_that_cannot_be_made(size: int) -> None:
    with pytest.raises(OptionError, match=f"vocab_size is {size}, expected"):
        bert_tokenizer(size)
