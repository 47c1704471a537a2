"""A SentencePiece model trained here, of words that a random checkpoint's vocabulary has."""

from __future__ import annotations

import io

import sentencepiece

from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer

_TIMES = 5


def corpus() -> list[str]:
    """Sentences that nobody would say."""
    vocabulary = t5_tokenizer(3000)["model"]["vocab"][3:2800]
    return [piece.replace("\u2581", "") + " the tape" for piece, _ in vocabulary]


def train(sentences: list[str], pieces: int, **settings: float) -> bytes:
    """A unigram model of ``pieces`` pieces with T5's special tokens, in which ``sentences`` weigh more."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([*corpus(), *sentences * _TIMES]),
        model_writer=out,
        vocab_size=pieces,
        model_type="unigram",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        **settings,
    )
    return out.getvalue()


def train_llama(sentences: list[str], pieces: int) -> bytes:
    """A model of merged pairs with Llama's special tokens and settings."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([*corpus(), *sentences * _TIMES]),
        model_writer=out,
        vocab_size=pieces,
        model_type="bpe",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return out.getvalue()
