"""The names and layouts of Octo's parameters, in Flax and here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.errors import CheckpointError

Array = npt.NDArray[Any]
Layout = Callable[[Array], Array]


def _as_it_is(x: Array) -> Array:
    return x


def _transposed(x: Array) -> Array:
    """[inputs, outputs] to [outputs, inputs]."""
    return np.asarray(x.T)


def _filters(x: Array) -> Array:
    """[kh, kw, inputs, outputs] to [outputs, inputs, kh, kw]."""
    return np.asarray(x.transpose(3, 2, 0, 1))


def _first(x: Array) -> Array:
    """The only batch of a broadcast parameter."""
    return np.asarray(x[0])


def _into_heads(x: Array) -> Array:
    """[inputs, heads, depth] to [heads * depth, inputs]."""
    return np.asarray(x.reshape(len(x), -1).T)


def _from_heads(x: Array) -> Array:
    """[heads, depth, outputs] to [outputs, heads * depth]."""
    return np.asarray(x.reshape(-1, x.shape[-1]).T)


def _flat(x: Array) -> Array:
    return x.reshape(-1)


_MODEL = "octo_transformer"
_STEM = rf"{_MODEL}/observation_tokenizers_(\w+)/SmallStem\w*_0"
_LAYER = rf"{_MODEL}/BlockTransformer_0/Transformer_0/encoderblock_(\d+)"
_T5 = rf"{_MODEL}/task_tokenizers_language/hf_model"
_HEAD = "heads_action/diffusion_model"


def _norm(pattern: str, name: str) -> list[tuple[str, str, Layout]]:
    return [(f"{pattern}/scale", f"{name}.weight", _as_it_is), (f"{pattern}/bias", f"{name}.bias", _as_it_is)]


def _dense(pattern: str, name: str, layout: Layout = _transposed) -> list[tuple[str, str, Layout]]:
    return [(f"{pattern}/kernel", f"{name}.weight", layout), (f"{pattern}/bias", f"{name}.bias", _flat)]


def _attention(part: str, name: str, layout: Layout) -> list[tuple[str, str, Layout]]:
    pattern = f"{_LAYER}/MultiHeadDotProductAttention_0/{part}"
    return _dense(pattern, rf"transformer.layers.\1.self_attn.{name}", layout)


# Pattern of a parameter's name, its name here, and what happens to its values.
_RULES: list[tuple[str, str, Layout]] = [
    *_dense(rf"{_STEM}/StdConv_(\d+)", r"observation.\1.stem.\2.conv", _filters),
    *_norm(rf"{_STEM}/GroupNorm_(\d+)", r"observation.\1.stem.\2.norm"),
    *_dense(rf"{_STEM}/embedding", r"observation.\1.stem.embedding", _filters),
    *_dense(rf"{_MODEL}/obs_(\w+)_projection", r"observation.\1.projection"),
    (rf"{_MODEL}/obs_(\w+)_pos_embedding", r"observation.\1.positions", _first),
    *_dense(rf"{_MODEL}/task_language_projection", "task.language.projection"),
    (rf"{_MODEL}/task_language_pos_embedding", "task.language.positions", _first),
    (rf"{_MODEL}/readout_action_pos_embedding", "readout.action.positions", _first),
    *_attention("query", "q", _into_heads),
    *_attention("key", "k", _into_heads),
    *_attention("value", "v", _into_heads),
    *_attention("out", "out", _from_heads),
    *_norm(f"{_LAYER}/LayerNorm_0", r"transformer.layers.\1.norm1"),
    *_norm(f"{_LAYER}/LayerNorm_1", r"transformer.layers.\1.norm2"),
    *_dense(f"{_LAYER}/MlpBlock_0/Dense_0", r"transformer.layers.\1.linear1"),
    *_dense(f"{_LAYER}/MlpBlock_0/Dense_1", r"transformer.layers.\1.linear2"),
    *_norm(f"{_MODEL}/BlockTransformer_0/Transformer_0/encoder_norm", "transformer.norm"),
    (f"{_HEAD}/time_preprocess/kernel", "head.time.frequencies", _as_it_is),
    *_dense(f"{_HEAD}/cond_encoder/Dense_0", "head.time.linear1"),
    *_dense(f"{_HEAD}/cond_encoder/Dense_1", "head.time.linear2"),
    *_dense(f"{_HEAD}/reverse_network/Dense_0", "head.input"),
    *_dense(f"{_HEAD}/reverse_network/Dense_1", "head.output"),
    *_norm(rf"{_HEAD}/reverse_network/MLPResNetBlock_(\d+)/LayerNorm_0", r"head.blocks.\1.norm"),
    *_dense(rf"{_HEAD}/reverse_network/MLPResNetBlock_(\d+)/Dense_0", r"head.blocks.\1.linear1"),
    *_dense(rf"{_HEAD}/reverse_network/MLPResNetBlock_(\d+)/Dense_1", r"head.blocks.\1.linear2"),
]
# T5's parameters have the names of its PyTorch checkpoints but for the last part.
_T5_RULES: list[tuple[str, Layout]] = [
    ("kernel", _transposed),
    ("embedding", _as_it_is),
    ("weight", _as_it_is),
]


def octo_weights(parameters: Mapping[str, Array]) -> dict[str, npt.NDArray[np.float32]]:
    """Octo's weights by the names of this package. Raises CheckpointError for a parameter unknown to it."""
    return dict(_weight(name, values) for name, values in parameters.items())


def _weight(name: str, values: Array) -> tuple[str, npt.NDArray[np.float32]]:
    for target, layout in _matches(name):
        try:
            return f"model.{target}", np.ascontiguousarray(layout(values), np.float32)
        except ValueError:
            raise CheckpointError(
                f"parameter '{name}' has shape {list(values.shape)}, which is not that of Octo's"
            ) from None
    raise CheckpointError(
        f"parameter '{name}' is none of an Octo with small stems, a T5 instruction and a diffusion head"
    )


def _matches(name: str) -> list[tuple[str, Layout]]:
    """The name here and the layout, in a list of one, or none."""
    for pattern, target, layout in _RULES:
        found = re.fullmatch(pattern, name)
        if found:
            return [(found.expand(target), layout)]
    text = re.fullmatch(rf"{_T5}/(.+)/(\w+)", name)
    if text:
        module = text[1].replace("/", ".")
        return [(f"text.model.{module}.weight", layout) for last, layout in _T5_RULES if last == text[2]]
    return []
