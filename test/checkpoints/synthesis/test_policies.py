"""Names and shapes of the random policies, and what they refuse."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, OptionError, Options, default_options, make_checkpoint
from vla_simd_ros.checkpoints.synthesis.act import act_recipe
from vla_simd_ros.checkpoints.synthesis.diffusion import diffusion_recipe
from vla_simd_ros.checkpoints.synthesis.impact import impact_recipe
from vla_simd_ros.checkpoints.synthesis.openvla import openvla_recipe
from vla_simd_ros.checkpoints.synthesis.pi0_fast import pi0_fast_recipe
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.turbovla import turbovla_recipe, turbovla_so101_recipe
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

TOP = (Camera("top", 480, 640),)
TINY = {
    "dim_model": 16,
    "heads": 2,
    "feedforward": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "chunk_size": 4,
}


def test_full_size_act_has_the_parameters_of_lerobot() -> None:
    """51.6 M with one camera and 14 joints, frozen norms and fixed positions not counted."""
    tensors = act_recipe(Options(cameras=TOP, state_dim=14, action_dim=14)).tensors

    assert len(tensors) == 234
    learned = [v for name, v in tensors.items() if not frozen(name)]
    assert sum(v.size for v in learned) == 51_613_582


def frozen(name: str) -> bool:
    return ".bn" in name or ".downsample.1." in name or name.endswith("vae_encoder_pos_enc")


def test_full_size_impact_has_the_parameters_of_the_paper() -> None:
    tensors = impact_recipe(Options()).tensors

    text = sum(v.size for name, v in tensors.items() if name.startswith("model.text.model."))
    training = sum(v.size for name, v in tensors.items() if name.startswith("model.vae_encoder"))
    query = sum(v.size for v in tensors.values()) - text - training
    assert text == pytest.approx(35.3e6, rel=0.002)
    assert query == pytest.approx(60e6, rel=0.01)
    assert tensors["model.film_head.net.weight"].shape == (1920, 512)
    assert "model.backbone.stages.3.1.conv2.weight" in tensors


def test_full_size_diffusion_has_the_parameters_of_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    """262.7 M with one camera, of which the U-Net has 251.5 M; statistics and coordinates not counted."""
    # Numbers that are not looked at need not be drawn.
    monkeypatch.setattr(WeightMaker, "draw", lambda self, name, shape, low, high: np.zeros(shape, np.float32))
    tensors = diffusion_recipe(Options(cameras=(Camera("top", 96, 96),), state_dim=2, action_dim=2)).tensors

    learned = {name: v.size for name, v in tensors.items() if "running_" not in name and "grid" not in name}
    assert sum(learned.values()) == 262_709_026
    assert sum(size for name, size in learned.items() if ".unet." in name) == 251_511_938
    assert tensors["diffusion.rgb_encoder.0.pool.pos_grid"].shape == (9, 2)


def test_diffusion_without_scales_or_separate_encoders() -> None:
    settings = {
        "down_dims": [8, 16],
        "use_film_scale_modulation": False,
        "use_separate_rgb_encoder_per_camera": False,
        "use_group_norm": True,
        "resize_shape": [50, 40],
        "crop_ratio": 0.9,
    }
    recipe = diffusion_recipe(Options(settings=settings))

    assert recipe.config["crop_shape"] == [45, 36]
    assert recipe.tensors["diffusion.rgb_encoder.pool.pos_grid"].shape == (2 * 2, 2)
    assert not any("running_" in name for name in recipe.tensors)
    # Two moments of 6 joints and 2 x 64 coordinates each, beside the step's 128.
    modulation = recipe.tensors["diffusion.unet.mid_modules.0.cond_encoder.1.weight"]
    assert modulation.shape == (16, 128 + 2 * (6 + 2 * 64))


@pytest.mark.parametrize("recipe", [turbovla_recipe, turbovla_so101_recipe])
def test_full_size_turbovla_has_the_parameters_of_lerobot(
    recipe: Callable[[Options], Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WeightMaker, "draw", lambda self, name, shape, low, high: hollow(shape))
    tensors = recipe(Options()).tensors

    assert len(tensors) == 724
    assert sum(v.size for v in tensors.values()) == 209_286_150
    assert tensors["model.vision_encoder.model.layer.11.attention.k_proj.weight"].shape == (768, 768)
    assert "model.vision_encoder.model.layer.11.attention.k_proj.bias" not in tensors
    assert tensors["model.patch_pos_embed"].shape == (1, 196, 256)


def hollow(shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.float32(0), shape)


def test_an_impact_with_bert_has_its_tokenizer_and_its_width() -> None:
    settings = {"text_config.model_type": "bert", "text_config.num_hidden_layers": 1}
    recipe = impact_recipe(Options(sizes=TINY, settings={**settings, "backbone_width": 8}))

    tensors = recipe.tensors
    assert recipe.config["text_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert recipe.files["tokenizer.json"]["model"]["type"] == "WordPiece"
    assert tensors["model.text.model.embeddings.word_embeddings.weight"].shape == (30522, 384)
    assert tensors["model.text_input_proj.weight"].shape[1] == 384
    assert tensors["model.film_head.net.weight"].shape == (2 * (8 + 16 + 32 + 64), 384)
    assert tensors["model.backbone.conv1.weight"].shape == (8, 3, 7, 7)


def test_lerobots_act_has_no_field_for_the_width_of_its_backbone() -> None:
    assert "backbone_width" not in act_recipe(Options(sizes=TINY)).config
    narrow = act_recipe(Options(sizes=TINY, settings={"backbone_width": 16}))
    assert narrow.config["backbone_width"] == 16
    assert narrow.tensors["model.encoder_img_feat_input_proj.weight"].shape[1] == 128


def test_a_turbovla_folder_has_its_backbones_and_its_tokenizer() -> None:
    settings = {f"vision_config.{name}": 32 for name in ("hidden_size", "intermediate_size")}
    settings |= {f"text_config.{name}": 24 for name in ("hidden_size", "intermediate_size")}
    recipe = turbovla_recipe(
        Options(sizes=TINY, settings=settings | {"vision_config.num_attention_heads": 2})
    )

    assert "vision_config" not in recipe.config and "text_config" not in recipe.config
    assert recipe.files["vision_encoder/config.json"]["hidden_size"] == 32
    assert recipe.files["text_encoder/config.json"]["hidden_size"] == 24
    assert recipe.files["text_encoder/tokenizer.json"]["model"]["type"] == "WordPiece"
    assert recipe.config["normalization_mapping"]["VISUAL"] == "IDENTITY"


def test_configuration_follows_the_options() -> None:
    options = Options(
        cameras=(*TOP, Camera("wrist", 120, 160)),
        state_dim=7,
        env_state_dim=2,
        action_dim=5,
        sizes={**TINY, "pre_norm": True},
    )
    recipe = act_recipe(options)

    assert recipe.config["input_features"] == {
        "observation.images.top": {"type": "VISUAL", "shape": [3, 480, 640]},
        "observation.images.wrist": {"type": "VISUAL", "shape": [3, 120, 160]},
        "observation.state": {"type": "STATE", "shape": [7]},
        "observation.environment_state": {"type": "ENV", "shape": [2]},
    }
    assert recipe.config["n_action_steps"] == recipe.config["chunk_size"] == 4
    assert recipe.tensors["model.encoder.norm.weight"].shape == (16,)
    assert recipe.tensors["model.encoder_1d_feature_pos_embed.weight"].shape == (3, 16)
    assert recipe.tensors["model.encoder_env_state_input_proj.weight"].shape == (16, 2)
    assert recipe.tensors["model.action_head.bias"].shape == (5,)


def test_what_is_left_out() -> None:
    settings = {"use_vae": False}
    recipe = act_recipe(Options(cameras=(), env_state_dim=1, state_dim=0, sizes=TINY, settings=settings))

    assert not any("vae" in name or "backbone" in name or "robot_state" in name for name in recipe.tensors)
    assert "model.encoder.norm.weight" not in recipe.tensors


def test_an_ensemble_executes_one_step_at_a_time() -> None:
    recipe = act_recipe(
        Options(cameras=(), env_state_dim=1, sizes=TINY, settings={"temporal_ensemble_coeff": 0.01})
    )

    assert recipe.config["n_action_steps"] == 1


def test_bottleneck_backbone() -> None:
    tensors = act_recipe(Options(cameras=TOP, sizes={**TINY, "backbone": "resnet50"})).tensors

    assert tensors["model.backbone.layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert tensors["model.backbone.layer4.2.conv3.weight"].shape == (2048, 512, 1, 1)
    assert tensors["model.encoder_img_feat_input_proj.weight"].shape == (16, 2048, 1, 1)


@pytest.mark.parametrize(
    ("policy", "options", "complaint"),
    [
        ("act", {"cameras": ()}, "act needs a camera or an environment state, got neither"),
        ("impact", {"cameras": (), "env_state_dim": 2}, "impact needs a camera"),
        ("act", {"sizes": {"dim_model": 30}}, "dim_model is 30, expected a multiple of 8 heads"),
        ("act", {"sizes": {"dim_model": 6, "heads": 3}}, "dim_model is 6, expected a multiple of 4"),
        ("act", {"sizes": {"chunk_size": 0}}, "chunk_size is 0, expected 1 or more"),
        ("act", {"settings": {"n_action_steps": 101}}, "n_action_steps is 101, expected 1 to 100"),
        ("act", {"sizes": {"backbone": "vgg"}}, "backbone 'vgg' is unknown, expected one of resnet18"),
        (
            "impact",
            {"settings": {"tokenizer_max_length": 1}},
            "tokenizer_max_length is 1, expected 2 or more",
        ),
        (
            "impact",
            {"settings": {"text_config.d_ff": 0}},
            "text_config.d_ff is 0, expected a positive number",
        ),
        (
            "impact",
            {"settings": {"text_config.model_type": "gpt"}},
            "text_config.model_type is 'gpt', expected one of t5, bert",
        ),
        (
            "impact",
            {"settings": {"text_config.model_type": "bert", "text_config.hidden_size": 100}},
            "text_config.hidden_size is 100, expected a multiple of 12 heads",
        ),
        (
            "impact",
            {"settings": {"text_config.model_type": "bert", "text_config.max_position_embeddings": 31}},
            r"max_position_embeddings is 31, expected 32 \(tokenizer_max_length\) or more",
        ),
        ("act", {"settings": {"backbone_width": 0}}, "backbone_width is 0, expected 1 or more"),
        ("diffusion", {"state_dim": 0}, "diffusion needs a state, got a width of 0"),
        ("diffusion", {"cameras": ()}, "diffusion needs a camera or an environment state, got neither"),
        ("diffusion", {"cameras": (*TOP, Camera("b", 4, 4))}, "diffusion needs cameras of one size"),
        ("diffusion", {"settings": {"horizon": 20}}, "horizon is 20, expected a multiple of 8"),
        ("diffusion", {"settings": {"kernel_size": 0}}, "kernel_size is 0, expected 1 or more"),
        ("diffusion", {"settings": {"down_dims": [12]}}, r"down_dims is \[12\], expected multiples of"),
        ("diffusion", {"sizes": {"chunk_size": 64}}, "n_action_steps is 64, expected at most 63"),
        (
            "diffusion",
            {"settings": {"diffusion_step_embed_dim": 2}},
            "diffusion_step_embed_dim is 2, expected 4, 6, 8",
        ),
        ("diffusion", {"settings": {"noise_scheduler_type": "X"}}, "is 'X', expected DDPM or DDIM"),
        ("turbovla", {"cameras": ()}, "turbovla needs a camera"),
        ("turbovla_so101", {"env_state_dim": 2}, "turbovla_so101 takes no environment state"),
        ("turbovla", {"settings": {"n_fusion_layers": 0}}, "n_fusion_layers is 0, expected 1 or more"),
        ("turbovla", {"sizes": {"dim_model": 30}}, "dim_model is 30, expected a multiple of 8 heads"),
        (
            "turbovla",
            {"sizes": {"backbone": "resnet18"}},
            "'resnet18' is unknown, expected one of dinov3_vit",
        ),
        ("turbovla", {"settings": {"image_size": 100}}, "image_size is 100, expected a multiple of 16"),
        (
            "turbovla_so101",
            {"settings": {"vision_config.hidden_size": 100}},
            "vision_config.hidden_size is 100, expected a multiple of 12 heads",
        ),
        ("turbovla", {"settings": {"text_config.vocab_size": 9}}, "text_config.vocab_size is 9, expected"),
        ("dance", {}, "policy 'dance' is unknown, expected one of act, diffusion, impact"),
    ],
)
def test_what_cannot_be_made(tmp_path: Any, policy: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        make_checkpoint(policy, tmp_path / "out", Options(**options))
    assert not (tmp_path / "out").exists()


OPENVLA = {
    "image_sizes": [28, 28],
    "timm_model_args.featurizer.embed_dim": 16,
    "timm_model_args.featurizer.num_heads": 2,
    "timm_model_args.fused_featurizer.embed_dim": 16,
    "timm_model_args.fused_featurizer.num_heads": 2,
    "timm_model_args.fused_featurizer.depth": 2,
    "text_config.vocab_size": 704,
    "text_config.num_key_value_heads": 2,
    "n_action_bins": 16,
}
OPENVLA_SIZES = {"dim_model": 16, "heads": 2, "feedforward": 16, "encoder_layers": 2, "decoder_layers": 1}


def openvla(**settings: Any) -> Recipe:
    robot = dataclasses.replace(default_options("openvla"), sizes=OPENVLA_SIZES)
    return openvla_recipe(dataclasses.replace(robot, settings={**OPENVLA, **settings}))


def test_an_openvla_has_the_fields_of_a_published_folder() -> None:
    recipe = openvla()
    assert recipe.config["model_type"] == "openvla"
    assert "type" not in recipe.config
    assert recipe.config["pad_token_id"] == 640
    assert recipe.preprocessor is recipe.postprocessor is None
    action = recipe.config["norm_stats"]["random"]["action"]
    assert (len(action["q01"]), action["mask"]) == (7, [True] * 6 + [False])
    assert recipe.files["preprocessor_config.json"]["image_resize_strategy"] == "resize-naive"
    # Words that stand for no action score next to nothing.
    head = np.abs(recipe.tensors["language_model.lm_head.weight"]).mean(axis=1)
    assert head[624:640].min() > 5 * max(head[:624].max(), head[640:].max())


def test_weights_in_several_files_have_an_index(tmp_path: Path) -> None:
    options = dataclasses.replace(default_options("openvla"), sizes=OPENVLA_SIZES)
    options = dataclasses.replace(options, settings={**OPENVLA, "shard_bytes": 30_000})
    parameters = make_checkpoint("openvla", tmp_path / "made", options)
    index = json.loads((tmp_path / "made" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "made").glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert sorted(set(index["weight_map"].values())) == files
    assert index["metadata"]["total_size"] == 4 * parameters
    assert not (tmp_path / "made" / "policy_preprocessor.json").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_config.vocab_size": 300}, "pad_to_multiple_of is 236, expected [0-9]+ or more"),
        ({"text_config.num_key_value_heads": 3}, "num_key_value_heads is 3, expected a divisor of 2 heads"),
        ({"n_action_bins": 640}, "n_action_bins is 640, expected 2 to 639"),
        ({"image_sizes": [30, 30]}, r"expected a multiple of patch_size \(14\)"),
        ({"timm_model_args.featurizer.depth": 1}, "depth 1, expected"),
        ({"timm_model_args.featurizer.num_heads": 3}, "featurizer: width is 16, expected a multiple of 3"),
        ({"timm_model_args.featurizer.mlp_ratio": 0.0}, "mlp_ratio is 0.0, expected a number above 0"),
    ],
    ids=str,
)  # fmt: skip
def test_openvla_sizes_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        openvla(**settings)


def test_an_openvla_has_one_camera_and_no_state() -> None:
    with pytest.raises(OptionError, match="openvla needs one camera, and takes no state"):
        openvla_recipe(Options())


PI0_FAST = {
    "image_resolution": [28, 28],
    "paligemma.vision_config.hidden_size": 16,
    "paligemma.vision_config.num_attention_heads": 2,
    "paligemma.text_config.num_attention_heads": 2,
    "paligemma.text_config.head_dim": 8,
    "paligemma.text_config.vocab_size": 800,
    "fast_words": 150,
    "fast_skip_tokens": 16,
}


def pi0_fast(**settings: Any) -> Recipe:
    return pi0_fast_recipe(Options(sizes=TINY, settings={**PI0_FAST, **settings}))


def test_a_pi0_fast_has_its_tokenizers_and_lerobot_s_steps() -> None:
    recipe = pi0_fast()
    assert (recipe.config["chunk_size"], recipe.config["n_action_steps"]) == (4, 4)
    assert "fast_words" not in recipe.config
    fast = recipe.files["action_tokenizer/tokenizer.json"]["model"]
    assert len(fast["vocab"]) == 150
    assert len(recipe.files["tokenizer.json"]["model"]["vocab"]) == 800
    assert recipe.preprocessor is not None
    names = [step["registry_name"] for step in recipe.preprocessor]
    assert names.index("normalizer_processor") < names.index("tokenizer_processor") < len(names) - 1
    assert names[-1] == "device_processor"
    # Words of FAST and the one that ends an answer score more than others.
    table = np.abs(recipe.tensors["model.paligemma_with_expert.paligemma.lm_head.weight"]).mean(axis=1)
    end = recipe.files["tokenizer.json"]["model"]["vocab"]["|"]
    loud = {int(word) for word in np.flatnonzero(table > 2 * np.median(table))}
    assert loud == {end, *range(800 - 16 - 150, 800 - 16)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"paligemma.text_config.vocab_size": 300}, "vocab_size is 300, expected [0-9]+ or more"),
        ({"paligemma.text_config.head_dim": 7}, "2 heads of 7 with 1 for keys, expected"),
        ({"paligemma.vision_config.hidden_size": 15}, "hidden_size is 15, expected a multiple of 2 heads"),
        ({"paligemma.vision_config.patch_size": 0}, "patch_size is 0, expected 1 or more"),
        ({"image_resolution": [28, 42]}, r"image_resolution is \[28, 42\], expected a square"),
        ({"fast_words": 100}, "fast_words is 100, expected 121 to"),
        ({"fast_words": 790}, r"fast_words is 790, expected at most vocab_size \(800\) less"),
    ],
    ids=str,
)  # fmt: skip
def test_pi0_fast_sizes_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        pi0_fast(**settings)


def test_a_pi0_fast_needs_a_state() -> None:
    with pytest.raises(OptionError, match="pi0_fast needs a camera and a state"):
        pi0_fast_recipe(Options(state_dim=0))
