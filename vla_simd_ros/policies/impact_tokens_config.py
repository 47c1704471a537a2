"""The configuration of IMPACT with action tokens, read from a checkpoint and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.policies.act_config import ActConfig, read_act_config
from vla_simd_ros.policies.blocks.llama import BASE, LlamaConfig
from vla_simd_ros.policies.config_fields import misfit, positive


@dataclass(frozen=True)
class ImpactTokensConfig:
    """Features and sizes. ``act`` is what IMPACT's encoder has; the ``layers`` behind it have the sizes of
    ``layer``. Actions are spelled in ``bins``, those of one joint ``relative`` to its observed position or
    as they are."""

    act: ActConfig
    layer: LlamaConfig
    layers: int
    bins: int
    relative: bool


def read_impact_tokens_config(checkpoint: Checkpoint) -> ImpactTokensConfig:
    """Read config.json. Raises CheckpointError."""
    config = ImpactTokensConfig(
        act=read_act_config(checkpoint, encoder_layers=6, decoder_layers=1, chunk=8),
        layer=_layer(checkpoint),
        layers=positive(checkpoint, "n_token_layers", 3),
        bins=positive(checkpoint, "action_bins", 256),
        relative=checkpoint.option("relative_actions", bool, True),
    )
    stride = checkpoint.option("action_stride", int, 1)
    if stride != 1:
        raise misfit(checkpoint, "action_stride", stride, "1 (rows one step period apart)")
    state = config.act.state.channels if config.act.state else 0
    if config.relative and state != config.act.action.channels:
        raise misfit(
            checkpoint,
            "relative_actions",
            "true",
            f"false, or a state as wide as the action ({config.act.action.channels}, got {state})",
        )
    return config


def _layer(checkpoint: Checkpoint) -> LlamaConfig:
    width, heads = positive(checkpoint, "token_width", 192), positive(checkpoint, "token_heads", 6)
    if width % heads or width // heads % 2:
        raise misfit(checkpoint, "token_width", width, f"an even width for each of token_heads ({heads})")
    kv_heads = positive(checkpoint, "token_kv_heads", heads)
    if heads % kv_heads:
        raise misfit(checkpoint, "token_kv_heads", kv_heads, f"a divisor of token_heads ({heads})")
    return LlamaConfig(
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head=width // heads,
        feedforward=positive(checkpoint, "token_feedforward", 512),
        eps=_above_zero(checkpoint, "rms_norm_eps", 1e-5),
        base=_above_zero(checkpoint, "rope_theta", BASE),
    )


def _above_zero(checkpoint: Checkpoint, name: str, default: float) -> float:
    value = float(checkpoint.option(name, float, default))
    if not 0 < value < float("inf"):
        raise misfit(checkpoint, name, value, "a finite number above 0")
    return value
