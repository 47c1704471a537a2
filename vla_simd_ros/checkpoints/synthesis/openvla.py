"""Random OpenVLA folders, laid out as the published ones: in a size that a laptop computes in a second, or
theirs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.driving import add_linear
from vla_simd_ros.checkpoints.synthesis.llama_vocabulary import (
    BEGINNING,
    END,
    PADDING,
    UNKNOWN,
    llama_tokenizer,
)
from vla_simd_ros.checkpoints.synthesis.options import Camera, OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.smolvlm import add_llama_layer, add_rms_norm
from vla_simd_ros.checkpoints.synthesis.weights import F32, WeightMaker
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

OPENVLA_OPTIONS = Options(cameras=(Camera("image", 224, 224),), state_dim=0, action_dim=7)
_ARGUMENTS = "timm_model_args"
_SIZE_FIELDS = {
    "encoder_layers": f"{_ARGUMENTS}.featurizer.depth",
    "decoder_layers": "text_config.num_hidden_layers",
    "dim_model": "text_config.hidden_size",
    "heads": "text_config.num_attention_heads",
    "feedforward": "text_config.intermediate_size",
}
_TOWER = {"patch_size": 14, "embed_dim": 384, "depth": 6, "num_heads": 6, "mlp_ratio": 4.0}
_TEXT = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
}
_TOWERS_FULL: dict[str, dict[str, Any]] = {
    "featurizer": {"patch_size": 14, "embed_dim": 1024, "depth": 24, "num_heads": 16, "mlp_ratio": 4.0},
    "fused_featurizer": {
        "patch_size": 14,
        "embed_dim": 1152,
        "depth": 27,
        "num_heads": 16,
        "mlp_ratio": 3.7362,
    },
}
_TEXT_FULL = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}
_REGISTERS = 4
_COLOURS = 3
# Of a sub-layer's output: the sum over all neither drowns the patches nor is drowned by them.
_LAYER_SCALE = 0.4
# Of words that stand for no action: a random network would otherwise answer with one of them.
_OTHER_WORDS = 0.05
# The largest file, in bytes of float32 values.
_SHARD_BYTES = 2 << 30
# As far as the two halves of a published folder's preprocessor write them: rounded to bfloat16.
_MEANS = [[0.484375, 0.455078125, 0.40625], [0.5, 0.5, 0.5]]
_STDS = [[0.228515625, 0.2236328125, 0.224609375], [0.5, 0.5, 0.5]]


def openvla_recipe(options: Options) -> Recipe:
    """A random OpenVLA; settings below ``timm_model_args`` are sizes of its vision towers."""
    config = _config(options)
    apply_options(config, _SIZE_FIELDS, "openvla", options)
    strategy = config["image_resize_strategy"]
    _check(config, options)
    config["norm_stats"] = {"random": {"action": _statistics(options)}}
    make = WeightMaker(options.seed)
    fused = config["use_fused_vision_backbone"]
    seen = 0
    for name, args in config[_ARGUMENTS].items():
        _add_tower(
            make,
            f"vision_backbone.{name}",
            args,
            config["image_sizes"][0],
            dino=fused and name == "featurizer",
        )
        seen += args["embed_dim"]
    _add_projector(make, seen, config["text_config"]["hidden_size"], fused)
    _add_language_model(make, config)
    files = {
        "preprocessor_config.json": _preprocessor(config, strategy),
        TOKENIZER_JSON: llama_tokenizer(config["text_config"]["vocab_size"] - config["pad_to_multiple_of"]),
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizerFast",
            "bos_token": BEGINNING,
            "eos_token": END,
            "unk_token": UNKNOWN,
            "pad_token": PADDING,
            "padding_side": "right",
        },
    }
    return Recipe(config, make.tensors, None, None, files, shard_bytes=config.pop("shard_bytes"))


def _config(options: Options) -> dict[str, Any]:
    """config.json as it is published, and fields of this package: what the camera is, and the towers'
    sizes."""
    towers = _TOWERS_FULL if options.full_size else {name: dict(_TOWER) for name in _TOWERS_FULL}
    return {
        "architectures": ["OpenVLAForActionPrediction"],
        "model_type": "openvla",
        "arch_specifier": "no-align+fused-gelu-mlp",
        "hf_llm_id": "meta-llama/Llama-2-7b-hf",
        "image_resize_strategy": "resize-naive",
        "image_sizes": [224, 224],
        "llm_backbone_id": "llama2-7b-pure",
        "llm_max_length": 2048,
        "n_action_bins": 256,
        "norm_stats": {},
        "output_projector_states": False,
        "pad_to_multiple_of": 64,
        "pad_token_id": 32000,
        "text_config": {
            "model_type": "llama",
            "pad_token_id": 32000,
            "vocab_size": 32064,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            **(_TEXT_FULL if options.full_size else _TEXT),
        },
        "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
        "timm_override_act_layers": [None, None],
        "use_fused_vision_backbone": True,
        "vision_backbone_id": "dinosiglip-vit-so-224px",
        "input_features": features.input_features(options),
        "max_language_tokens": 96,
        _ARGUMENTS: towers,
        "shard_bytes": _SHARD_BYTES,
    }


def _check(config: dict[str, Any], options: Options) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built."""
    if len(options.cameras) != 1 or options.state_dim or options.env_state_dim:
        raise OptionError("openvla needs one camera, and takes no state")
    if not config["use_fused_vision_backbone"]:
        # SigLIP alone, as it comes second.
        config[_ARGUMENTS] = {"featurizer": config[_ARGUMENTS]["featurizer"]}
        for name in ("image_sizes", "timm_model_ids", "timm_override_act_layers"):
            config[name] = config[name][1:]
    text = config["text_config"]
    words = text["vocab_size"] - config["pad_to_multiple_of"]
    config["pad_token_id"] = text["pad_token_id"] = words
    sizes = {f"text_config.{name}": text[name] for name in _TEXT}
    for name, args in config[_ARGUMENTS].items():
        sizes |= {f"{_ARGUMENTS}.{name}.{key}": value for key, value in args.items()}
    for path, value in sizes.items():
        if value <= 0:
            raise OptionError(f"{path} is {value}, expected a number above 0")
    heads = {name: (args["embed_dim"], args["num_heads"]) for name, args in config[_ARGUMENTS].items()}
    for name, (width, count) in {
        **heads,
        "text_config": (text["hidden_size"], text["num_attention_heads"]),
    }.items():
        if width % count:
            raise OptionError(f"{name}: width is {width}, expected a multiple of {count} heads")
    for args in config[_ARGUMENTS].values():
        if config["image_sizes"][0] % args["patch_size"] or args["depth"] < 2:
            raise OptionError(
                f"image_sizes is {config['image_sizes'][0]} and depth {args['depth']}, expected a multiple "
                f"of patch_size ({args['patch_size']}) and 2 or more"
            )
    if text["num_attention_heads"] % text["num_key_value_heads"]:
        raise OptionError(
            f"text_config.num_key_value_heads is {text['num_key_value_heads']}, expected a divisor of "
            f"{text['num_attention_heads']} heads"
        )
    if not 2 <= config["n_action_bins"] < words:
        raise OptionError(f"n_action_bins is {config['n_action_bins']}, expected 2 to {words - 1}")


def _statistics(options: Options) -> dict[str, Any]:
    """Ranges of an arm's moves; the gripper, which comes last, has none."""
    drawn = features.statistics(options.seed, features.output_features(options))
    moves = {name.rpartition(".")[2]: values.tolist() for name, values in drawn.items()}
    return {**moves, "mask": [True] * (options.action_dim - 1) + [False]}


def _preprocessor(config: dict[str, Any], strategy: str) -> dict[str, Any]:
    towers = len(config[_ARGUMENTS])
    return {
        "image_processor_type": "PrismaticImageProcessor",
        "processor_class": "PrismaticProcessor",
        "image_resize_strategy": strategy,
        "input_sizes": [[_COLOURS, size, size] for size in config["image_sizes"]],
        "interpolations": ["bicubic"] * towers,
        "means": _MEANS[-towers:],
        "stds": _STDS[-towers:],
        "use_fused_vision_backbone": config["use_fused_vision_backbone"],
    }


def _add_tower(make: WeightMaker, name: str, args: dict[str, Any], image: int, dino: bool) -> None:
    """A tower as timm stores it, with the pooling that SigLIP has and nobody reads here."""
    width, patch = args["embed_dim"], args["patch_size"]
    hidden = int(width * args["mlp_ratio"])
    patches = (image // patch) ** 2
    if dino:
        make.spread(f"{name}.cls_token", (1, 1, width), 1.0)
        make.spread(f"{name}.reg_token", (1, _REGISTERS, width), 1.0)
    make.spread(f"{name}.pos_embed", (1, patches, width), 0.5)
    make.spread(
        f"{name}.patch_embed.proj.weight", (width, _COLOURS, patch, patch), (_COLOURS * patch**2) ** -0.5
    )
    make.uniform(f"{name}.patch_embed.proj.bias", (width,), 0.05)
    for index in range(args["depth"]):
        _add_block(make, f"{name}.blocks.{index}", width, hidden, dino)
    make.layer_norm(f"{name}.norm", width)
    if not dino:
        make.spread(f"{name}.attn_pool.latent", (1, 1, width), 1.0)
        for part, outputs, inputs in (("q", width, width), ("kv", 2 * width, width), ("proj", width, width)):
            add_linear(make, f"{name}.attn_pool.{part}", inputs, outputs)
        make.layer_norm(f"{name}.attn_pool.norm", width)
        add_linear(make, f"{name}.attn_pool.mlp.fc1", width, hidden)
        add_linear(make, f"{name}.attn_pool.mlp.fc2", hidden, width)


def _add_block(make: WeightMaker, layer: str, width: int, hidden: int, scaled: bool) -> None:
    residual = 1.0 if scaled else _LAYER_SCALE
    make.layer_norm(f"{layer}.norm1", width)
    qkv = make.draw(f"{layer}.attn.qkv.weight", (3 * width, width), -1, 1)
    qkv *= (3 / width) ** 0.5
    qkv[: 2 * width] *= 1.5  # what is seen then matters
    make.tensors[f"{layer}.attn.qkv.weight"] = qkv
    make.uniform(f"{layer}.attn.qkv.bias", (3 * width,), 0.05)
    add_linear(make, f"{layer}.attn.proj", width, width, residual)
    make.layer_norm(f"{layer}.norm2", width)
    add_linear(make, f"{layer}.mlp.fc1", width, hidden)
    add_linear(make, f"{layer}.mlp.fc2", hidden, width, residual)
    if scaled:
        for scale in ("ls1", "ls2"):
            make.uniform(f"{layer}.{scale}.scale_factor", (width,), 0.5 * _LAYER_SCALE, _LAYER_SCALE)


def _add_projector(make: WeightMaker, seen: int, width: int, fused: bool) -> None:
    widths = [seen, 4 * seen, width, width] if fused else [seen, width, width]
    for index, (inputs, outputs) in enumerate(pairwise(widths), 1):
        add_linear(make, f"projector.fc{index}", inputs, outputs, gain=2.5)


def _add_language_model(make: WeightMaker, config: dict[str, Any]) -> None:
    text = config["text_config"]
    width, vocabulary = text["hidden_size"], text["vocab_size"]
    head = width // text["num_attention_heads"]
    body = "language_model.model"
    make.spread(f"{body}.embed_tokens.weight", (vocabulary, width), 1.0)
    for index in range(text["num_hidden_layers"]):
        add_llama_layer(
            make, f"{body}.layers.{index}", {**text, "head_dim": head}, width, text["intermediate_size"]
        )
    add_rms_norm(make, f"{body}.norm", width)
    make.tensors["language_model.lm_head.weight"] = _head(make, config, width)


def _head(make: WeightMaker, config: dict[str, Any], width: int) -> F32:
    vocabulary = config["text_config"]["vocab_size"]
    words = vocabulary - config["pad_to_multiple_of"]
    weight = make.draw("language_model.lm_head.weight", (vocabulary, width), -1, 1)
    weight *= (3 / width) ** 0.5
    weight[: words - config["n_action_bins"]] *= _OTHER_WORDS
    weight[words:] *= _OTHER_WORDS
    return weight
