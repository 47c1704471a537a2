"""Random TurboVLA checkpoints in both forms of LeRobot's, with the configurations of their backbones.

LeRobot saves no configuration of a backbone; here they are kept beside the weights, so that the sizes of a
small checkpoint are known, and the tokenizer too, so that a folder is complete.
"""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.checkpoint import CONFIG, TEXT_ENCODER_FOLDER, VISION_ENCODER_FOLDER
from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.bert import BASE, add_bert
from vla_simd_ros.checkpoints.synthesis.dino import DINOV2_BASE, DINOV3_BASE, add_dinov2, add_dinov3
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import TOKENIZER_SETTINGS, bert_tokenizer
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON
from vla_simd_ros.checkpoints.wordpiece import TOKENIZER_CONFIG

_SIZE_FIELDS = {
    "chunk_size": "chunk_size",
    "encoder_layers": "n_fusion_layers",
    "decoder_layers": "n_decoder_layers",
    "dim_model": "dim_model",
    "heads": "n_heads",
    "feedforward": "dim_feedforward",
    "backbone": "vision_config.model_type",
}
_VISION, _TEXT = "vision_config", "text_config"
_HIDDEN_STATE = "vision_hidden_state"
_BACKBONES = {"dinov3_vit": (DINOV3_BASE, add_dinov3), "dinov2": (DINOV2_BASE, add_dinov2)}
_PLACE_DEVIATION = 0.5
_COUNTS = (
    "chunk_size",
    "n_action_steps",
    "n_heads",
    "dim_feedforward",
    "image_size",
    "n_fusion_layers",
    "n_decoder_layers",
)


def turbovla_recipe(options: Options) -> Recipe:
    """The form of the package ``lerobot-policy-turbovla``."""
    return _recipe("turbovla", {"optimizer_weight_decay": 1e-4, "optimizer_grad_clip_norm": 10.0}, options)


def turbovla_so101_recipe(options: Options) -> Recipe:
    """The form of the package ``lerobot-policy-turbovla-so101``."""
    own = {
        "optimizer_betas": [0.9, 0.95],
        "optimizer_weight_decay": 1e-10,
        "optimizer_grad_clip_norm": 1.0,
        "temporal_ensemble_coeff": None,
        "compile_model": False,
    }
    return _recipe("turbovla_so101", own, options)


def _recipe(policy: str, own: dict[str, Any], options: Options) -> Recipe:
    config = {**_config(policy, options), **own}
    apply_options(config, _SIZE_FIELDS, policy, options)
    if config[_HIDDEN_STATE] is None:
        # LeRobot's own packages know no other than theirs, and refuse a field of this name.
        del config[_HIDDEN_STATE]
    vision, text = config.pop(_VISION), config.pop(_TEXT)
    _finish(config, vision, text, options)
    files = {
        f"{VISION_ENCODER_FOLDER}/{CONFIG}": vision,
        f"{TEXT_ENCODER_FOLDER}/{CONFIG}": text,
        f"{TEXT_ENCODER_FOLDER}/{TOKENIZER_JSON}": bert_tokenizer(text["vocab_size"]),
        f"{TEXT_ENCODER_FOLDER}/{TOKENIZER_CONFIG}": TOKENIZER_SETTINGS,
    }
    make = WeightMaker(options.seed)
    _BACKBONES[vision["model_type"]][1](make, "model.vision_encoder", vision)
    add_bert(make, "model.language_encoder", text)
    _add_tokens(make, config, vision, text, options)
    _add_trunk(make, config, options)
    before, after = features.preprocessor_steps(config), features.postprocessor_steps(config)
    return Recipe(config, make.tensors, before, after, files)


def _config(policy: str, options: Options) -> dict[str, Any]:
    """The configuration at full size. ``n_action_steps`` None stands for the whole chunk."""
    return {
        **features.common_config(policy, options),
        "chunk_size": 12,
        "n_action_steps": None,
        "normalization_mapping": {**features.normalization_mapping(options), "VISUAL": "IDENTITY"},
        "vision_backbone": "facebook/dinov3-vitb16-pretrain-lvd1689m",
        "language_backbone": "google-bert/bert-base-uncased",
        "load_pretrained_backbones": False,
        "freeze_vision_backbone": True,
        "freeze_language_backbone": True,
        "image_size": 224,
        "max_language_tokens": 32,
        "dim_model": 256,
        "n_heads": 8,
        "dim_feedforward": 1024,
        "feedforward_activation": "relu",
        "dropout": 0.1,
        "n_fusion_layers": 6,
        "n_decoder_layers": 4,
        "optimizer_lr": 5e-5,
        "optimizer_lr_backbone": 5e-6,
        "scheduler_warmup_steps": 10_000,
        "scheduler_decay_steps": 80_000,
        "scheduler_decay_lr": 5e-7,
        _HIDDEN_STATE: None,
        _VISION: dict(_vision_base(options)),
        _TEXT: dict(BASE),
    }


def _vision_base(options: Options) -> dict[str, Any]:
    field = _SIZE_FIELDS["backbone"]
    backbone = options.settings.get(field, options.sizes.get("backbone", "dinov3_vit"))
    if backbone not in _BACKBONES:
        raise OptionError(f"backbone '{backbone}' is unknown, expected one of {', '.join(_BACKBONES)}")
    return _BACKBONES[backbone][0]


def _finish(config: dict[str, Any], vision: dict[str, Any], text: dict[str, Any], options: Options) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built."""
    if config["n_action_steps"] is None:
        ensemble = config.get("temporal_ensemble_coeff") is not None
        config["n_action_steps"] = 1 if ensemble else config["chunk_size"]
    if not options.cameras:
        raise OptionError(f"{config['type']} needs a camera")
    if options.env_state_dim:
        raise OptionError(f"{config['type']} takes no environment state")
    for name in _COUNTS:
        _require(config[name] >= 1, name, config[name], "1 or more")
    _require_heads("dim_model", config["dim_model"], config["n_heads"])
    for owner, fields in ((_VISION, vision), (_TEXT, text)):
        for name, value in fields.items():
            any_value = isinstance(value, bool | str) or name == "num_register_tokens"
            _require(any_value or value > 0, f"{owner}.{name}", value, "a positive number")
        _require_heads(f"{owner}.hidden_size", fields["hidden_size"], fields["num_attention_heads"])
    patch = vision["patch_size"]
    _require(config["image_size"] % patch == 0, "image_size", config["image_size"], f"a multiple of {patch}")


def _require_heads(name: str, width: int, heads: int) -> None:
    _require(width >= heads and width % heads == 0, name, width, f"a multiple of {heads} heads")


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise OptionError(f"{name} is {value}, expected {expected}")


def _add_tokens(
    make: WeightMaker, config: dict[str, Any], vision: dict[str, Any], text: dict[str, Any], options: Options
) -> None:
    """What brings pictures, text and state to one width, and says where they are from."""
    width = config["dim_model"]
    make.unit_linear("model.vision_proj", vision["hidden_size"], width)
    make.unit_linear("model.language_proj", text["hidden_size"], width)
    patches = (config["image_size"] // vision["patch_size"]) ** 2
    make.spread("model.patch_pos_embed", (1, patches, width), _PLACE_DEVIATION)
    make.spread("model.camera_embed.weight", (len(options.cameras), width), _PLACE_DEVIATION)
    if options.state_dim:
        make.linear("model.state_proj", options.state_dim, width)
        make.spread("model.state_embed", (1, 1, width), _PLACE_DEVIATION)


def _add_trunk(make: WeightMaker, config: dict[str, Any], options: Options) -> None:
    """Interaction layers, decoder and head."""
    width = config["dim_model"]
    interaction, decoder = "model.vl_interaction", "model.action_decoder"
    for index in range(config["n_fusion_layers"]):
        layer = f"{interaction}.layers.{index}"
        for attention in ("text_to_vision_attn", "vision_to_text_attn"):
            _add_attention(make, f"{layer}.{attention}", width)
        for side in ("vision", "text"):
            make.layer_norm(f"{layer}.norm_{side}_attn", width)
            _add_feedforward(make, f"{layer}.norm_{side}_ffn", f"{layer}.{side}_ffn", config)
    for side in ("vision", "text"):
        make.layer_norm(f"{interaction}.norm_{side}", width)
    make.embedding(f"{decoder}.query_embed", config["chunk_size"], width)
    for index in range(config["n_decoder_layers"]):
        layer = f"{decoder}.layers.{index}"
        for attention in ("self_attn", "cross_attn"):
            make.layer_norm(f"{layer}.norm_{attention}", width)
            _add_attention(make, f"{layer}.{attention}", width)
        _add_feedforward(make, f"{layer}.norm_ffn", f"{layer}.ffn", config)
    make.layer_norm(f"{decoder}.norm", width)
    make.linear(f"{decoder}.action_head", width, options.action_dim)


def _add_attention(make: WeightMaker, name: str, width: int) -> None:
    for part in "qk":
        make.sharp_linear(f"{name}.{part}_proj", width)
    for part in ("v", "out"):
        make.unit_linear(f"{name}.{part}_proj", width, width)


def _add_feedforward(make: WeightMaker, norm: str, name: str, config: dict[str, Any]) -> None:
    width, hidden = config["dim_model"], config["dim_feedforward"]
    make.layer_norm(norm, width)
    make.unit_linear(f"{name}.linear1", width, hidden)
    make.unit_linear(f"{name}.linear2", hidden, width)
