"""The frozen text encoder that a policy is trained with: T5 or BERT, as its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from torch import nn

from vla_simd_ros.training.bert import BertConfig, BertEncoder
from vla_simd_ros.training.t5 import T5Config, T5Encoder

TextConfig: TypeAlias = T5Config | BertConfig


def read_text_config(stated: Mapping[str, Any]) -> TextConfig:
    """The sizes that ``stated`` has, the published ones where it has none. T5 where no kind is said."""
    kind = BertConfig if stated.get("model_type") == "bert" else T5Config
    return kind(**{f.name: stated[f.name] for f in fields(kind) if f.name in stated})


def make_text_encoder(config: TextConfig) -> nn.Module:
    """A network that takes token ids and their mask, and gives a state for each token."""
    return BertEncoder(config) if isinstance(config, BertConfig) else T5Encoder(config)
