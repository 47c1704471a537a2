from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers

from vla_simd_ros.checkpoints import CheckpointError, InstructionError, Tokenizer
from vla_simd_ros.checkpoints.prompt import Prompt
from vla_simd_ros.checkpoints.synthesis.byte_vocabulary import byte_tokenizer
from vla_simd_ros.checkpoints.synthesis.llama_vocabulary import llama_tokenizer
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.checkpoints.tokenizer import load_tokenizer

SIZE = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(t5_tokenizer(SIZE)), encoding="utf-8")
    return folder


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer([folder], 32)


def pieces(tokenizer: Tokenizer, folder: Path, text: str) -> list[str]:
    vocabulary = [piece for piece, _ in json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]]
    return [vocabulary[i] for i in tokenizer.encode(text)]


def test_words_and_end_of_text(tokenizer: Tokenizer, folder: Path) -> None:
    assert pieces(tokenizer, folder, "put the tape into the box") == [
        "▁put",
        "▁the",
        "▁tape",
        "▁into",
        "▁the",
        "▁box",
        "</s>",
    ]


def test_ids_of_the_marks(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("put")[-1] == 1
    # Characters that the vocabulary lacks, side by side, are one unknown piece.
    assert tokenizer.encode("put 漢字")[1:] == [tokenizer.encode("漢")[0], 2, 1]
    assert tokenizer.vocabulary_size == SIZE - 28


@pytest.mark.parametrize(
    "text",
    [
        "  put   the tape ",
        "put\nthe\ttape\n",
        "put\u00a0the\u3000tape",
        "put the tape\r\n",
        "\uff50\uff55\uff54 the tape",
    ],
)
def test_white_space_and_width_do_not_matter(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == tokenizer.encode("put the tape")


def test_composed_and_decomposed_letters_are_one(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("café") == tokenizer.encode("cafe\u0301")
    assert tokenizer.encode("café") != tokenizer.encode("cafe")


def test_case_matters(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Put") != tokenizer.encode("put")


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000"])
def test_empty_text(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(InstructionError, match="is empty, expected a sentence"):
        tokenizer.encode(text)


def test_truncation_keeps_the_end_of_text(folder: Path) -> None:
    tokenizer = load_tokenizer([folder], 5)
    long = tokenizer.tokenize("put the red tape into the box")
    exact = tokenizer.tokenize("put the red tape")

    assert long.truncated
    assert not exact.truncated
    assert long.ids == exact.ids
    assert len(long.ids) == 5
    assert long.ids[-1] == 1


def test_settings_in_the_file_do_not_pad_or_cut(tmp_path: Path) -> None:
    content = t5_tokenizer(SIZE)
    content["padding"] = {
        "strategy": {"Fixed": 10},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    content["truncation"] = {
        "direction": "Right",
        "max_length": 3,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))

    assert len(load_tokenizer([tmp_path], 32).encode("put the tape into the box")) == 7


def test_second_folder(folder: Path, tmp_path: Path) -> None:
    assert load_tokenizer([tmp_path, folder], 32).source == folder / "tokenizer.json"


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"no tokenizer\.json, spiece\.model, tokenizer\.model or vocab\.txt in"
    ):
        load_tokenizer([tmp_path], 32)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "malformed JSON"),
        ("{}", "model type is None, expected 'Unigram' or 'WordPiece' or 'BPE'"),
        ('{"model": {"type": "WordLevel"}}', "model type is 'WordLevel', expected 'Unigram' or"),
        ('{"model": {"type": "BPE"}}', "not a tokenizer"),
        ('{"model": {"type": "Unigram"}}', "not a tokenizer"),
        ('{"model": {"type": "Unigram", "unk_id": null}}', "unk_id is null, expected the number of"),
    ],
)
def test_broken_file(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(CheckpointError, match=complaint) as caught:
        load_tokenizer([tmp_path], 32)
    assert "tokenizer.json" in str(caught.value)


def test_file_without_end_of_text(tmp_path: Path) -> None:
    content = t5_tokenizer(SIZE)
    content["added_tokens"] = []
    content["post_processor"] = None
    content["model"]["vocab"][1][0] = "<end>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match="has no token '</s>'"):
        load_tokenizer([tmp_path], 32)


def test_no_room_for_a_piece(folder: Path) -> None:
    with pytest.raises(
        CheckpointError, match="longest instruction is 1 tokens, expected at least 2, </s> included"
    ):
        load_tokenizer([folder], 1)


@pytest.fixture(scope="module")
def bytes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(600)), encoding="utf-8")
    return folder


def test_bytes_have_no_marks_around_them(bytes_folder: Path) -> None:
    tokenizer = load_tokenizer([bytes_folder], 48)
    names = json.loads((bytes_folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert tokenizer.encode("pick the box 42\u6f22\n") == [
        names[piece] for piece in [*"pick", "Ġthe", "Ġbox", "Ġ", "4", "2", "æ", "¼", "¢", "Ċ"]
    ]


@pytest.mark.parametrize("text", ["open the box", "open the box\n"])
def test_an_ending_is_added_once(bytes_folder: Path, text: str) -> None:
    plain, ended = (load_tokenizer([bytes_folder], 48, ending) for ending in ("", "\n"))
    assert ended.encode(text) == plain.encode("open the box\n")
    assert ended.encode("open the box \n\n") == plain.encode("open the box \n\n")


def test_a_text_that_is_cut_loses_its_ending(bytes_folder: Path) -> None:
    tokenizer = load_tokenizer([bytes_folder], 4, "\n")
    whole = load_tokenizer([bytes_folder], 48).encode("open the box")
    cut = tokenizer.tokenize("open the box")
    assert cut.truncated and cut.ids == whole[:4]


def test_an_ending_alone_is_no_instruction(bytes_folder: Path) -> None:
    with pytest.raises(InstructionError, match="is empty, expected a sentence"):
        load_tokenizer([bytes_folder], 48, "\n").encode("")


def test_single_tokens_by_name(bytes_folder: Path) -> None:
    tokenizer = load_tokenizer([bytes_folder], 48)
    assert tokenizer.encode("<global-img>") == [tokenizer.token_id("<global-img>")]
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: has no token '<video>'"):
        tokenizer.token_id("<video>")


def test_the_longest_instruction_has_at_least_a_token(bytes_folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"longest instruction is 0 tokens, expected at least 1$"):
        load_tokenizer([bytes_folder], 0)


QUESTION = Prompt(begin="<s>", before="In: What ", after="?\nOut:", cleaned=str.lower)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    (folder / "tokenizer.json").write_text(json.dumps(llama_tokenizer(700)), encoding="utf-8")
    return folder


def prompt_tokenizer(folder: Path, longest: int = 40) -> Tokenizer:
    return load_tokenizer([folder], longest, prompt=QUESTION)


def test_a_prompt_is_one_text_around_the_instruction(llama: Path) -> None:
    tokenizer = prompt_tokenizer(llama)
    library = tokenizers.Tokenizer.from_file(str(llama / "tokenizer.json"))
    # What the library puts in front of a text itself is the mark.
    assert tokenizer.encode("Open the Drawer") == library.encode("In: What open the drawer?\nOut:").ids
    assert tokenizer.encode("Open")[0] == tokenizer.token_id("<s>") == 1
    assert tokenizer.vocabulary_size == 701


def test_a_long_prompt_loses_words_of_its_instruction(llama: Path) -> None:
    whole = prompt_tokenizer(llama).tokenize("open the drawer and take the cup")
    assert not whole.truncated
    tokenizer = prompt_tokenizer(llama, len(whole.ids) - 1)
    cut = tokenizer.tokenize("open the drawer and take the cup")
    assert (cut.ids, cut.truncated) == (tokenizer.encode("open the drawer and take the"), True)


def test_a_long_word_is_cut(llama: Path) -> None:
    around = len(prompt_tokenizer(llama)._ids("", ""))  # type: ignore[attr-defined]
    tokenizer = prompt_tokenizer(llama, around + 1)
    cut = tokenizer.tokenize("#" * 30)
    assert cut.truncated
    assert len(cut.ids) <= around + 1
    assert cut.ids[-1] == tokenizer.encode("a")[-1]


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_a_prompt_needs_an_instruction(llama: Path, text: str) -> None:
    with pytest.raises(InstructionError, match="is empty, expected a sentence"):
        prompt_tokenizer(llama).tokenize(text)


def test_a_prompt_needs_room_for_an_instruction(llama: Path) -> None:
    with pytest.raises(CheckpointError, match="the longest prompt is 9 tokens, expected more than the"):
        prompt_tokenizer(llama, 9)


def test_a_prompt_needs_its_mark(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="has no token '<s>'"):
        prompt_tokenizer(folder)
