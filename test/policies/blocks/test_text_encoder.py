from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_checkpoints import WITH_BERT, with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.policies.blocks.text_encoder import read_text_encoder

Open = Callable[..., Checkpoint]


@pytest.mark.parametrize("changes", [{}, WITH_BERT], ids=["t5", "bert"])
def test_the_kind_is_what_the_checkpoint_says(checkpoint: Open, changes: dict[str, Any]) -> None:
    assert read_text_encoder(checkpoint("impact", **changes), 8).width == 24


def test_t5_where_nothing_is_said(checkpoint: Open) -> None:
    whole = checkpoint("impact")
    config = {k: v for k, v in whole.config["text_config"].items() if k != "model_type"}
    assert read_text_encoder(with_config(whole, text_config=config), 8).width == 24


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "text encoder: model_type is 'gpt2', expected 't5' or 'bert'"),
        (
            {"max_position_embeddings": 7},
            r"max_position_embeddings is 7, expected 8 \(the longest instruction\) or more",
        ),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"num_attention_heads": 5}, "hidden_size is 24, expected a multiple of"),
    ],
)
def test_what_does_not_fit_is_named(checkpoint: Open, changes: dict[str, Any], message: str) -> None:
    whole = checkpoint("impact", **WITH_BERT)
    changed = with_config(whole, text_config={**whole.config["text_config"], **changes})
    with pytest.raises(CheckpointError, match=message):
        read_text_encoder(changed, 8)
