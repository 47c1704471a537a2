from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gguf import MARKS, TOKENS

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.gguf import GgufFile
from vla_simd_ros.language.gguf_tokenizer import GgufTokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> GgufTokenizer:
    return GgufTokenizer(GgufFile(tiny_gguf.write(tmp_path_factory.mktemp("model") / "m.gguf")))


def read(path: Path, **changes: Any) -> GgufTokenizer:
    return GgufTokenizer(GgufFile(tiny_gguf.write(path / "m.gguf", **changes)))


def test_pairs_are_merged_within_words(tokenizer: GgufTokenizer) -> None:
    ids = tokenizer.encode("hello world")
    assert [TOKENS[i] for i in ids] == ["hell", "o", "Ġwor", "l", "d"]


def test_digits_stand_alone(tokenizer: GgufTokenizer) -> None:
    assert [TOKENS[i] for i in tokenizer.encode("a12")] == ["a", "1", "2"]


def test_marks_are_tokens_and_no_text(tokenizer: GgufTokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>o<|im_end|>")
    assert [TOKENS[i] for i in ids] == ["<|im_start|>", "o", "<|im_end|>"]
    assert tokenizer.decode(ids) == "o"
    assert tokenizer.ends == {TOKENS.index("<|im_end|>")}


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="helo wr12'<|>_\u00e9\u6f22\U0001f600\n\t", max_size=20))
def test_texts_come_back(tokenizer: GgufTokenizer, text: str) -> None:
    if not any(mark in text for mark in MARKS):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_text_may_begin_with_a_mark(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, tokenizer__ggml__add_bos_token=True)
    assert tokenizer.encode("o") == [1, TOKENS.index("o")]


def test_a_conversation_follows_the_template(tmp_path: Path, tokenizer: GgufTokenizer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    text = tokenizer.conversation(messages)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    plain = read(tmp_path, tokenizer__chat_template=None)
    assert plain.conversation(messages) == "hi"


@pytest.mark.parametrize("template", ["{% for x in %}", "{{ messages[0].content.nothing.at.all }}"])
def test_templates_that_do_not_work(tmp_path: Path, template: str) -> None:
    tokenizer = read(tmp_path, tokenizer__chat_template=template)
    with pytest.raises(CheckpointError, match=r"field 'tokenizer.chat_template': "):
        tokenizer.conversation([{"role": "user", "content": "hi"}])


def test_a_template_reaches_nothing_but_the_messages(tmp_path: Path) -> None:
    template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    tokenizer = read(tmp_path, tokenizer__chat_template=template)
    with pytest.raises(CheckpointError, match="unsafe"):
        tokenizer.conversation([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "llama"}, "tokenizer of kind 'llama', expected 'gpt2'"),
        ({"pre": "deepseek"}, "texts are cut by 'deepseek', expected one of gpt-2, default, smollm"),
        ({"merges": ["h e", "hello"]}, "merges' has 'hello', expected two parts and a space between"),
        ({"merges": ["h zz"]}, "merges'"),
        ({"tokens": [*TOKENS[:-1], "o"]}, "not all different"),
        ({"token_type": [1, 2]}, "token_type' has 2 entries"),
        (
            {"eos_token_id": len(TOKENS)},
            f"eos_token_id' is {len(TOKENS)}, expected one of {len(TOKENS)} tokens",
        ),
    ],
)
def test_tokens_that_cannot_be_understood(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        read(tmp_path, **{f"tokenizer__ggml__{name}": value for name, value in changes.items()})
    assert str(tmp_path / "m.gguf") in str(error.value)
