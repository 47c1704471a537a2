"""Sizes of the vision transformers DINOv3 and DINOv2, and the names that their weights have."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.policies.blocks.stated import Stated

DINOV3, DINOV2 = "dinov3_vit", "dinov2"
_ACTIVATIONS = ("gelu", "silu", "relu")


@dataclass(frozen=True)
class DinoNames:
    """Stored names of the parts; those of a layer follow ``layer`` and its number."""

    patches: str
    layer: tuple[str, ...]
    q: str
    k: str
    v: str
    out: str
    up: str
    down: str
    norm: str


_NAMES = {
    DINOV3: DinoNames(
        patches="embeddings.patch_embeddings",
        # The library moved the layers into a module of their own in its version 5.
        layer=("model.layer.", "layer."),
        q="attention.q_proj",
        k="attention.k_proj",
        v="attention.v_proj",
        out="attention.o_proj",
        up="mlp.up_proj",
        down="mlp.down_proj",
        norm="norm",
    ),
    DINOV2: DinoNames(
        patches="embeddings.patch_embeddings.projection",
        layer=("encoder.layer.",),
        q="attention.attention.query",
        k="attention.attention.key",
        v="attention.attention.value",
        out="attention.output.dense",
        up="mlp.fc1",
        down="mlp.fc2",
        norm="layernorm",
    ),
}


@dataclass(frozen=True)
class DinoConfig:
    """Sizes of the network.

    ``rope_base`` is None where positions are learned: then there is a table of ``positions`` rows of patches.
    ``gated`` feed-forward layers multiply the activated half by another one. ``biased`` names the
    projections around attention that have a bias, of q, k, v and out.
    """

    names: DinoNames
    width: int
    feedforward: int
    layers: int
    heads: int
    patch: int
    registers: int
    activation: str
    eps: float
    gated: bool
    rope_base: float | None
    positions: int
    biased: frozenset[str]
    feedforward_bias: bool


def read_dino_config(stated: Stated) -> DinoConfig:
    """The sizes that ``stated`` has. Raises CheckpointError for another network."""
    if stated.model_type == DINOV3:
        return _dinov3(stated)
    if stated.model_type == DINOV2:
        return _dinov2(stated)
    raise stated.misfit("model_type", f"'{stated.model_type}'", f"'{DINOV3}' or '{DINOV2}'")


def _dinov3(stated: Stated) -> DinoConfig:
    width = stated.size("hidden_size", 384)
    heads = stated.heads(width, 6)
    if width // heads % 4:
        raise stated.misfit(
            "hidden_size", width, f"{heads} heads of a multiple of 4 each (positions in two dimensions)"
        )
    biases = {"q": "query_bias", "k": "key_bias", "v": "value_bias", "out": "proj_bias"}
    return DinoConfig(
        names=_NAMES[DINOV3],
        width=width,
        feedforward=stated.size("intermediate_size", 1536),
        layers=stated.size("num_hidden_layers", 12),
        heads=heads,
        patch=stated.size("patch_size", 16),
        registers=stated.size("num_register_tokens", 0, least=0),
        activation=stated.choice("hidden_act", "gelu", _ACTIVATIONS),
        eps=stated.number("layer_norm_eps", 1e-5),
        gated=stated.flag("use_gated_mlp", False),
        rope_base=stated.number("rope_theta", 100.0),
        positions=0,
        biased=frozenset(part for part, name in biases.items() if stated.flag(name, part != "k")),
        feedforward_bias=stated.flag("mlp_bias", True),
    )


def _dinov2(stated: Stated) -> DinoConfig:
    width = stated.size("hidden_size", 768)
    if stated.flag("use_swiglu_ffn", False):
        raise stated.misfit("use_swiglu_ffn", "true", "false")
    patch = stated.size("patch_size", 14)
    side = stated.size("image_size", 224) // patch
    return DinoConfig(
        names=_NAMES[DINOV2],
        width=width,
        feedforward=int(width * stated.number("mlp_ratio", 4)),
        layers=stated.size("num_hidden_layers", 12),
        heads=stated.heads(width, 12),
        patch=patch,
        registers=0,
        activation=stated.choice("hidden_act", "gelu", _ACTIVATIONS),
        eps=stated.number("layer_norm_eps", 1e-6),
        gated=False,
        rope_base=None,
        positions=side * side,
        biased=frozenset(("q", "k", "v", "out") if stated.flag("qkv_bias", True) else ("out",)),
        feedforward_bias=True,
    )
