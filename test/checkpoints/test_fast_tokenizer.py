"""FAST's tokens, against the transform written out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.fast_tokenizer import FastTokenizer
from vla_simd_ros.checkpoints.synthesis.gemma_vocabulary import fast_processor, fast_tokenizer

WORDS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text(json.dumps(fast_tokenizer(3, WORDS)))
    (tmp_path / "processor_config.json").write_text(json.dumps(fast_processor(WORDS)))
    return tmp_path


def spelled(folder: Path, numbers: list[int]) -> list[int]:
    """The words of numbers, as FAST makes them."""
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids: list[int] = library.encode("".join(chr(number + 60) for number in numbers)).ids
    return ids


def transformed(chunk: np.ndarray) -> np.ndarray:
    """The orthonormal cosine transform of each column, number by number."""
    rows, columns = chunk.shape
    result = np.zeros(chunk.shape)
    for k in range(rows):
        for j in range(columns):
            for n in range(rows):
                result[k, j] += chunk[n, j] * math.cos(math.pi * k * (2 * n + 1) / (2 * rows))
        result[k] *= math.sqrt((1 if k == 0 else 2) / rows)
    return result


def test_words_are_the_numbers_that_they_were_made_of(folder: Path) -> None:
    numbers = [0, 3, -4, 60, -60, 1, 1, 0, 0, -2]
    words = spelled(folder, numbers)
    assert len(words) < len(numbers), "some pairs are one word"
    tokenizer = FastTokenizer(folder)
    assert tokenizer.size == WORDS
    assert tokenizer.frequencies(words).tolist() == numbers


def test_a_chunk_comes_back_from_its_frequencies(folder: Path) -> None:
    chunk = np.random.default_rng(0).uniform(-1, 1, (6, 3))
    numbers = np.round(transformed(chunk) * 10).astype(int)
    got = FastTokenizer(folder).chunk(spelled(folder, numbers.ravel().tolist()), 6, 3)
    np.testing.assert_allclose(transformed(got), numbers / 10, atol=1e-12)
    assert np.abs(got - chunk).max() < 0.15, "but for the rounding to tenths"


def test_frequencies_that_are_missing_are_zero_and_those_too_many_are_left_out(folder: Path) -> None:
    tokenizer = FastTokenizer(folder)
    short, long = spelled(folder, [5, -5]), spelled(folder, [5, -5, 0, 0, 9, 9])
    np.testing.assert_array_equal(tokenizer.chunk(short, 2, 2), tokenizer.chunk(long, 2, 2))
    np.testing.assert_allclose(tokenizer.chunk(short, 2, 2), np.array([[0.5, -0.5]] * 2) / math.sqrt(2))
    assert not tokenizer.chunk([], 2, 2).any()


def test_half_of_a_number_is_none(folder: Path) -> None:
    content = fast_tokenizer(3, WORDS)
    # The first byte of a character of two.
    content["model"]["vocab"]["Ã"] = WORDS
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="the words spell no whole number at place 1"):
        FastTokenizer(folder).frequencies([60, WORDS, 60])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("processor_config.json", {"min_token": -60}, "'scale' is missing"),
        ("processor_config.json", {"min_token": -60, "scale": 0}, "scale is 0.0, expected a number above 0"),
        ("processor_config.json", {"min_token": 0.5, "scale": 10}, "'min_token' is a number"),
        ("tokenizer.json", {"model": {}}, "not a tokenizer"),
    ],
    ids=str,
)
def test_folders_that_do_not_fit_are_refused(
    folder: Path, name: str, content: dict[str, Any], message: str
) -> None:
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        FastTokenizer(folder)
