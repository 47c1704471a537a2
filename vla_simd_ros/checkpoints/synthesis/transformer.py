"""Random transformer layers of ACT and its descendants, with PyTorch's names."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker


def add_encoder(make: WeightMaker, prefix: str, layers: int, config: dict[str, Any]) -> None:
    """Self-attention layers under ``prefix``; a final norm only where the layers normalize first."""
    width = config["dim_model"]
    for layer in range(layers):
        name = f"{prefix}.layers.{layer}"
        make.attention(f"{name}.self_attn", width)
        _add_feedforward(make, name, width, config["dim_feedforward"])
        _add_norms(make, name, width, 2)
    if config["pre_norm"]:
        make.layer_norm(f"{prefix}.norm", width)


def add_decoder(make: WeightMaker, prefix: str, layers: int, config: dict[str, Any]) -> None:
    """Self- and cross-attention layers under ``prefix``, and a final norm."""
    width = config["dim_model"]
    for layer in range(layers):
        name = f"{prefix}.layers.{layer}"
        make.attention(f"{name}.self_attn", width)
        make.attention(f"{name}.multihead_attn", width)
        _add_feedforward(make, name, width, config["dim_feedforward"])
        _add_norms(make, name, width, 3)
    make.layer_norm(f"{prefix}.norm", width)


def _add_feedforward(make: WeightMaker, name: str, width: int, hidden: int) -> None:
    make.xavier_linear(f"{name}.linear1", width, hidden)
    make.xavier_linear(f"{name}.linear2", hidden, width)


def _add_norms(make: WeightMaker, name: str, width: int, count: int) -> None:
    for index in range(1, count + 1):
        make.layer_norm(f"{name}.norm{index}", width)
