from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.policies.turbovla_config import read_turbovla_config

Open = Callable[..., Checkpoint]
FORMS = ("turbovla", "turbovla_so101")


@dataclasses.dataclass
class Names:
    """The names of the weights are all that tells one vision encoder from another."""

    path: Path
    stored: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return name in self.stored


POSITIONS = "model.vision_encoder.embeddings.position_embeddings"


def as_saved(checkpoint: Checkpoint, folder: Path, *stored: str, **fields: Any) -> Checkpoint:
    """The checkpoint as LeRobot saves it: without the configurations of its backbones."""
    weights: Any = Names(folder / "model.safetensors", stored)
    return dataclasses.replace(with_config(checkpoint, **fields), folder=folder, weights=weights)


def write_config(folder: Path, **fields: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder)


def test_published_backbones_are_known_by_their_names(checkpoint: Open, tmp_path: Path) -> None:
    config = read_turbovla_config(as_saved(checkpoint("turbovla"), tmp_path))
    vision, text = config.vision, config.text
    assert (vision.width, vision.layers, vision.heads, vision.feedforward) == (768, 12, 12, 3072)
    assert (vision.patch, vision.registers, vision.rope_base, vision.eps) == (16, 4, 100.0, 1e-5)
    assert vision.biased == {"q", "v", "out"} and not vision.gated
    assert (text.width, text.layers, text.heads, text.feedforward) == (768, 12, 12, 3072)
    assert (text.vocabulary, text.positions, text.eps) == (30522, 512, 1e-12)


@pytest.mark.parametrize(
    ("name", "stored", "sizes"),
    [
        ("facebook/dinov3-vitl16-pretrain-sat493m", (), (1024, 24, 16, 4096, 0)),
        ("facebook/dinov3-vits16-pretrain-lvd1689m", (), (384, 12, 6, 1536, 0)),
        ("facebook/dinov2-base", (POSITIONS,), (768, 12, 12, 3072, 37 * 37)),
    ],
)
def test_other_vision_encoders(
    checkpoint: Open, tmp_path: Path, name: str, stored: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    saved = as_saved(checkpoint("turbovla"), tmp_path, *stored, vision_backbone=name, image_size=224)
    vision = read_turbovla_config(saved).vision
    found = vision.width, vision.layers, vision.heads, vision.feedforward, vision.positions
    assert found == sizes


@pytest.mark.parametrize("where", ["beside", "named"])
def test_the_configuration_of_a_backbone_may_be_a_file(checkpoint: Open, tmp_path: Path, where: str) -> None:
    fields = {"model_type": "dinov3_vit", "hidden_size": 40, "num_attention_heads": 5, "rope_theta": 50}
    beside = tmp_path / "vision_encoder"
    folder = write_config(beside if where == "beside" else tmp_path / "elsewhere", **fields)
    name = "facebook/dinov2-base" if where == "beside" else folder
    vision = read_turbovla_config(as_saved(checkpoint("turbovla"), tmp_path, vision_backbone=name)).vision
    assert (vision.width, vision.heads, vision.rope_base) == (40, 5, 50.0)
    assert (vision.layers, vision.patch) == (12, 16), "what is not said is at the library's default"


@pytest.mark.parametrize("option", ["vision_backbone", "language_backbone"])
def test_an_unknown_backbone_is_asked_for(checkpoint: Open, tmp_path: Path, option: str) -> None:
    folder = {"vision_backbone": "vision_encoder", "language_backbone": "text_encoder"}[option]
    saved = as_saved(checkpoint("turbovla"), tmp_path, **{option: "someone/something"})
    with pytest.raises(
        CheckpointError, match=rf"{option} is 'someone/something', neither .* put the config\.json .*{folder}"
    ):
        read_turbovla_config(saved)


def test_the_stand_in_of_a_build_without_download(checkpoint: Open, tmp_path: Path) -> None:
    """A DINOv2 of a ViT-B/16's sizes, its positions for the policy's own images."""
    saved = as_saved(checkpoint("turbovla"), tmp_path, POSITIONS, image_size=256)
    vision = read_turbovla_config(saved).vision
    assert vision.rope_base is None
    found = vision.width, vision.layers, vision.heads, vision.feedforward, vision.patch, vision.positions
    assert found == (768, 12, 12, 3072, 16, 16 * 16)


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_another_encoder_than_named_are_refused(
    checkpoint: Open, tmp_path: Path, form: str
) -> None:
    pretrained = form == "turbovla"  # then nothing may stand in for what is named
    saved = as_saved(checkpoint(form), tmp_path, POSITIONS, load_pretrained_backbones=pretrained)
    with pytest.raises(
        CheckpointError, match=r"holds the weights of a vision encoder 'dinov2', .*'dinov3_vit'"
    ):
        read_turbovla_config(saved)


VISION_MISFITS = [
    ({"model_type": "vit"}, "model_type is 'vit', expected 'dinov3_vit' or 'dinov2'"),
    ({"hidden_size": 36}, "hidden_size is 36, expected 6 heads of a multiple of 4"),
    ({"hidden_size": 32}, "hidden_size is 32, expected a multiple of num_attention_heads"),
    ({"hidden_act": "mish"}, "hidden_act is 'mish', expected 'gelu' or"),
    ({"rope_theta": 0}, "rope_theta is 0.0, expected a number greater than 0"),
    ({"patch_size": 15}, r"image_size is 48, expected a multiple of .*\(15\)"),
    ({"model_type": None}, "'model_type' is null, expected a string"),
]
TEXT_MISFITS = [
    ({"model_type": "t5"}, "model_type is 't5', expected 'bert'"),
    ({"position_embedding_type": "relative_key"}, "is 'relative_key', expected 'absolute'"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, expected 1 or more"),
    ({"max_position_embeddings": 7}, "max_language_tokens is 8, expected 2 to 7"),
]


@pytest.mark.parametrize(
    ("folder", "fields", "complaint"),
    [
        *(("vision_encoder", {"model_type": "dinov3_vit", **f}, c) for f, c in VISION_MISFITS),
        *(("text_encoder", {"model_type": "bert", **f}, c) for f, c in TEXT_MISFITS),
    ],
)
def test_backbones_that_cannot_be(
    checkpoint: Open, tmp_path: Path, folder: str, fields: dict[str, Any], complaint: str
) -> None:
    write_config(tmp_path / folder, **fields)
    with pytest.raises(CheckpointError, match=complaint):
        read_turbovla_config(as_saved(checkpoint("turbovla"), tmp_path))


def test_a_dinov2_with_gates_is_refused(checkpoint: Open, tmp_path: Path) -> None:
    write_config(tmp_path / "vision_encoder", model_type="dinov2", use_swiglu_ffn=True)
    with pytest.raises(CheckpointError, match="use_swiglu_ffn is true, expected false"):
        read_turbovla_config(as_saved(checkpoint("turbovla"), tmp_path, POSITIONS))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"n_heads": 5}, r"dim_model is 32, expected a multiple of n_heads \(5\)"),
        ({"feedforward_activation": "silu"}, "feedforward_activation is 'silu', expected relu or gelu"),
        (
            {"vision_hidden_state": "last"},
            "vision_hidden_state is 'last', expected 'after_norm' or 'before_norm'",
        ),
        ({"image_size": 40}, "image_size is 40, expected a multiple of the vision encoder's patches"),
        ({"max_language_tokens": 1}, "max_language_tokens is 1, expected 2 to 512"),
        ({"max_language_tokens": 513}, "max_language_tokens is 513, expected 2 to 512"),
        ({"n_action_steps": 6}, r"n_action_steps is 6, expected at most chunk_size \(5\)"),
        ({"n_fusion_layers": 0}, "n_fusion_layers is 0, expected 1 or more"),
        ({"n_obs_steps": 2}, "n_obs_steps is 2, expected 1"),
        ({"vision_backbone": 3}, "'vision_backbone' is an integer"),
    ],
)
def test_configurations_that_cannot_be(checkpoint: Open, fields: dict[str, Any], complaint: str) -> None:
    whole = checkpoint("turbovla")
    if "vision_backbone" in fields:
        whole = dataclasses.replace(whole, folder=Path("nowhere"))
    with pytest.raises(CheckpointError, match=complaint):
        read_turbovla_config(with_config(whole, **fields))


def test_blending_is_of_the_so_101_form(checkpoint: Open) -> None:
    fields = {"temporal_ensemble_coeff": 0.01, "n_action_steps": 1}
    configs = [read_turbovla_config(with_config(checkpoint(form), **fields)) for form in FORMS]
    assert [config.temporal_ensemble_coeff for config in configs] == [None, 0.01]
    with pytest.raises(CheckpointError, match="n_action_steps is 5, expected 1 with temporal_ensemble_coeff"):
        read_turbovla_config(with_config(checkpoint("turbovla_so101"), temporal_ensemble_coeff=0.01))


def test_features_that_cannot_be(checkpoint: Open) -> None:
    whole = checkpoint("turbovla")
    state = {name: f for name, f in whole.features_in.items() if f.kind is FeatureKind.STATE}
    with pytest.raises(CheckpointError, match="expected a camera"):
        read_turbovla_config(dataclasses.replace(whole, features_in=state))
    grey = {"observation.images.top": Feature("observation.images.top", FeatureKind.VISUAL, (1, 48, 48))}
    with pytest.raises(CheckpointError, match=r"camera 'top' has shape \[1, 48, 48\]"):
        read_turbovla_config(dataclasses.replace(whole, features_in=grey))
    with pytest.raises(CheckpointError, match=r"output_features is .*expected 'action' among them"):
        read_turbovla_config(dataclasses.replace(whole, features_out={}))
