"""The configurations of backbones that a checkpoint names but does not hold.

LeRobot saves a backbone's weights among the policy's, and of its configuration only the name. Sizes can be
told from weights; heads, norms and rotations cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints.checkpoint import CONFIG, Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.policies.blocks.stated import Stated


def _transformer(width: int, layers: int) -> dict[str, Any]:
    """Sizes in the usual proportions: heads of 64, feed-forward layers four times as wide."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }


_SIZES = {"s": _transformer(384, 12), "b": _transformer(768, 12), "l": _transformer(1024, 24)}
_DINOV2_NAMES = {"s": "small", "b": "base", "l": "large"}
_DINOV3: dict[str, Any] = {"model_type": "dinov3_vit", "num_register_tokens": 4, "image_size": 224}
_BERT: dict[str, Any] = {"model_type": "bert"}

# As published; fields that are at the library's own default are left out.
_PUBLISHED: dict[str, dict[str, Any]] = {
    **{f"facebook/dinov3-vit{s}16-pretrain-lvd1689m": {**_DINOV3, **sizes} for s, sizes in _SIZES.items()},
    "facebook/dinov3-vitl16-pretrain-sat493m": {**_DINOV3, **_SIZES["l"]},
    **{
        f"facebook/dinov2-{_DINOV2_NAMES[s]}": {"model_type": "dinov2", "image_size": 518, **sizes}
        for s, sizes in _SIZES.items()
    },
    "google-bert/bert-base-uncased": {**_BERT, **_SIZES["b"], "vocab_size": 30522},
    "google-bert/bert-base-cased": {**_BERT, **_SIZES["b"], "vocab_size": 28996},
    "google-bert/bert-large-uncased": {**_BERT, **_SIZES["l"], "vocab_size": 30522},
    "google-bert/bert-large-cased": {**_BERT, **_SIZES["l"], "vocab_size": 28996},
}
_PUBLISHED |= {
    name.partition("/")[2]: fields for name, fields in _PUBLISHED.items() if name.startswith("google-bert/")
}
_DEFAULTS = {
    "vision_backbone": "facebook/dinov3-vitb16-pretrain-lvd1689m",
    "language_backbone": "google-bert/bert-base-uncased",
}


def stated_beside(checkpoint: Checkpoint, folder: str) -> Stated | None:
    """The configuration in the checkpoint's own folder ``folder``, which goes before any other."""
    return _read(checkpoint.folder / folder / CONFIG)


def backbone_name(checkpoint: Checkpoint, field: str) -> str:
    """The name in ``field`` of config.json."""
    name: str = checkpoint.option(field, str, _DEFAULTS[field])
    return name


def stated_by_name(checkpoint: Checkpoint, field: str) -> Stated | None:
    """The configuration of the backbone that ``field`` of config.json names, a folder or a published one."""
    folder = checkpoint.named_folder(field)
    found = None if folder is None else _read(folder / CONFIG)
    name = backbone_name(checkpoint, field)
    if found is None and name in _PUBLISHED:
        return Stated(_PUBLISHED[name], f"{field} '{name}'")
    return found


def unknown_backbone(checkpoint: Checkpoint, field: str, folder: str) -> CheckpointError:
    """The error of a backbone of which nothing is known but its weights."""
    name = backbone_name(checkpoint, field)
    return CheckpointError(
        f"{checkpoint.folder / CONFIG}: {field} is '{name}', neither a folder nor a model known here: "
        f"put the {CONFIG} of that backbone into {checkpoint.folder / folder}"
    )


def _read(path: Path) -> Stated | None:
    return Stated(read_json_object(path), str(path)) if path.is_file() else None
