"""A small IMPACT, and runs of action-token policies behind its encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demonstration_doubles import HEIGHT, WIDTH, Memory

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint

if TYPE_CHECKING:
    from vla_simd_ros.training.tokens_session import TokensRequest

SIZES = {"dim_model": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "decoder_layers": 1}
ENCODER = {
    "backbone_width": 8,
    "n_vae_encoder_layers": 1,
    "text_config.model_type": "bert",
    "text_config.vocab_size": 300,
    "text_config.hidden_size": 12,
    "text_config.num_hidden_layers": 1,
    "text_config.num_attention_heads": 2,
    "text_config.intermediate_size": 16,
}
SETTINGS: dict[str, Any] = {
    "chunk_size": 3,
    "action_bins": 16,
    "token_width": 16,
    "n_token_layers": 2,
    "token_heads": 2,
    "token_kv_heads": 1,
    "token_feedforward": 16,
    "optimizer_lr": 1e-2,
}
TRAINING = {"steps": 6, "batch_size": 8, "warmup_steps": 0, "held_out": 0.2}


def make_impact(folder: Path) -> Path:
    """A random IMPACT that takes what `Memory` holds."""
    cameras = tuple(Camera(name, HEIGHT, WIDTH) for name in ("front", "wrist"))
    options = Options(seed=3, cameras=cameras, state_dim=2, action_dim=2, sizes=SIZES, settings=ENCODER)
    make_checkpoint("impact", folder, options)
    return folder


def request(source: Path, folder: Path, **changes: Any) -> TokensRequest:
    """From demonstrations; from a teacher with ``distill=True``."""
    from vla_simd_ros.training.tokens_session import TokensRequest

    distill = changes.get("distill", False)
    asked = TokensRequest(
        source, distill, Memory(), ["memory"], folder, {} if distill else SETTINGS, TRAINING
    )
    return replace(asked, **changes)


def train(asked: TokensRequest, said: list[str] | None = None) -> Path:
    from vla_simd_ros.training.tokens_session import TokensSession

    say = (lambda text: None) if said is None else said.append
    return TokensSession(asked, say).train(log_every=3, save_every_s=1e9)


def log(folder: Path) -> Sequence[dict[str, str]]:
    from vla_simd_ros.training.trainer import read_log

    return list(read_log(folder / "log.csv"))
