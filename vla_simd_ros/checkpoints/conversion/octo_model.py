"""From the configuration of an original Octo to that of this package's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import field
from vla_simd_ros.checkpoints.synthesis.octo import octo_config
from vla_simd_ros.checkpoints.synthesis.options import Camera, Options

Arrays = Mapping[str, npt.NDArray[Any]]

_READOUT = "action"
_EXAMPLE_IMAGE = "observation/image_"
_COLOURS = 3
_IMAGES = {"default": "MIN_MAX", "imagenet": "MEAN_STD"}


def octo_model_config(
    original: dict[str, Any], example: Arrays, tensors: Arrays, action_width: int, where: Path
) -> dict[str, Any]:
    """config.json of our folder, from the original's, its example batch and its weights.

    ``where`` names the original's file in errors. Raises CheckpointError for a network that differs from
    Octo-Small in more than its sizes.
    """
    model = field(original, "model", dict, where)
    tokenizers = _image_tokenizers(model, example, where)
    cameras = tuple(_camera(name, example) for name in tokenizers)
    config = octo_config(Options(cameras=cameras, state_dim=0, action_dim=action_width))
    config |= _transformer(model, where) | _head(model, where) | _stem(next(iter(tokenizers)), tensors)
    config["normalization_mapping"] = {
        "VISUAL": _image_mode(tokenizers, where),
        "ACTION": _action_mode(original),
    }
    config["n_obs_steps"] = _window(example)
    config["tokenizer_max_length"] = _tensor(tensors, "model.task.language.positions").shape[0]
    config["n_action_steps"] = config["chunk_size"]
    config["text_config"] = _text(tensors)
    return config


def _module(spec: Mapping[str, Any], name: str, where: object) -> dict[str, Any]:
    """Keyword arguments of a module, which must be of class ``name``."""
    found = field(dict(spec), "name", str, where)
    if found != name:
        raise CheckpointError(f"{where} is a {found}, expected {name}")
    kwargs: dict[str, Any] = field(dict(spec), "kwargs", dict, where)
    return kwargs


def _expect(kwargs: Mapping[str, Any], where: object, **expected: Any) -> None:
    """Those of ``kwargs`` that are there have the one value that can be computed."""
    for name, value in expected.items():
        if kwargs.get(name, value) != value:
            raise CheckpointError(f"{where}: {name} is {kwargs[name]}, expected {value}")


def _image_tokenizers(model: dict[str, Any], example: Arrays, where: Path) -> dict[str, dict[str, Any]]:
    """Keyword arguments of the encoder of each camera; one that the data did not have was left out."""
    language = field(model, "task_tokenizers", dict, where)
    if list(language) != ["language"]:
        raise CheckpointError(f"{where}: task_tokenizers are {list(language)}, expected language alone")
    _module(language["language"], "LanguageTokenizer", f"{where}: task_tokenizers.language")
    encoders = {}
    for name, spec in field(model, "observation_tokenizers", dict, where).items():
        if f"{_EXAMPLE_IMAGE}{name}" not in example:
            continue
        place = f"{where}: observation_tokenizers.{name}"
        kwargs = _module(spec, "ImageTokenizer", place)
        _expect(kwargs, place, obs_stack_keys=[f"image_{name}"], task_film_keys=[], use_token_learner=False)
        goals = kwargs.get("task_stack_keys", [])
        if goals not in ([], [f"image_{name}"]):
            raise CheckpointError(f"{place}: task_stack_keys is {goals}, expected ['image_{name}'] or none")
        encoder = field(kwargs, "encoder", dict, place)
        if not str(encoder.get("name")).startswith("SmallStem"):
            raise CheckpointError(f"{place}: encoder is {encoder.get('name')}, expected a SmallStem")
        encoders[name] = field(encoder, "kwargs", dict, place)
        _expect(encoders[name], f"{place}.encoder", use_film=False)
    if not encoders:
        raise CheckpointError(
            f"{where}: none of observation_tokenizers has an image in example_batch.msgpack"
        )
    return encoders


def _camera(name: str, example: Arrays) -> Camera:
    shape = example[f"{_EXAMPLE_IMAGE}{name}"].shape
    if len(shape) != 5:
        raise CheckpointError(
            f"example_batch.msgpack: {_EXAMPLE_IMAGE}{name} has shape {list(shape)}, "
            "expected [batch, window, height, width, 3]"
        )
    return Camera(name, *shape[2:4])


def _window(example: Arrays) -> int:
    names = ("observation/timestep_pad_mask", "observation/pad_mask")
    mask = next((example[name] for name in names if name in example), None)
    if mask is None or mask.ndim != 2:
        raise CheckpointError(f"example_batch.msgpack: has no {names[0]} [batch, window]")
    return int(mask.shape[1])


def _transformer(model: dict[str, Any], where: Path) -> dict[str, Any]:
    readouts = field(model, "readouts", dict, where)
    if list(readouts) != [_READOUT]:
        raise CheckpointError(f"{where}: readouts are {list(readouts)}, expected {_READOUT} alone")
    sizes = field(model, "transformer_kwargs", dict, where)
    _expect(sizes, f"{where}: transformer_kwargs", add_position_embedding=False)
    return {
        "dim_model": field(model, "token_embedding_size", int, where),
        "n_layers": field(sizes, "num_layers", int, where),
        "n_heads": field(sizes, "num_attention_heads", int, where),
        "dim_feedforward": field(sizes, "mlp_dim", int, where),
        "max_horizon": field(model, "max_horizon", int, where),
        "n_readouts": field(readouts, _READOUT, int, where),
        # The first release had neither.
        "repeat_task_tokens": bool(model.get("repeat_task_tokens", False)),
        "use_correct_attention": bool(model.get("use_correct_attention", False)),
    }


def _head(model: dict[str, Any], where: Path) -> dict[str, Any]:
    heads = field(model, "heads", dict, where)
    place = f"{where}: heads.{_READOUT}"
    kwargs = _module(field(heads, _READOUT, dict, where), "DiffusionActionHead", place)
    _expect(kwargs, place, readout_key=f"readout_{_READOUT}", use_map=False, use_layer_norm=True)
    # The first release called the horizon otherwise.
    horizon = kwargs.get("action_horizon", kwargs.get("pred_horizon", 1))
    return {
        "chunk_size": horizon,
        "max_action_dim": kwargs.get("action_dim", 7),
        "max_action": kwargs.get("max_action", 5.0),
        "diffusion_steps": kwargs.get("diffusion_steps", 20),
        "time_dim": kwargs.get("time_dim", 32),
        "head_width": kwargs.get("hidden_dim", 256),
        "head_blocks": kwargs.get("num_blocks", 3),
    }


def _stem(camera: str, tensors: Arrays) -> dict[str, Any]:
    """Sizes of the stems, as the weights of one tell them; those of others must be the same."""
    prefix = f"model.observation.{camera}.stem"
    channels: list[int] = []
    while f"{prefix}.{len(channels)}.conv.weight" in tensors:
        channels.append(tensors[f"{prefix}.{len(channels)}.conv.weight"].shape[0])
    embedding = _tensor(tensors, f"{prefix}.embedding.weight")
    first = _tensor(tensors, f"{prefix}.0.conv.weight")
    return {
        "stem_channels": channels,
        "stem_width": embedding.shape[0],
        "patch_size": embedding.shape[2] * 2 ** len(channels),
        "sees_goal": first.shape[1] == 2 * _COLOURS,
    }


def _text(tensors: Arrays) -> dict[str, Any]:
    """Sizes of the text encoder, as its weights tell them."""
    blocks = "model.text.model.encoder.block"
    vocabulary, width = _tensor(tensors, "model.text.model.shared.weight").shape
    inner, _ = _tensor(tensors, f"{blocks}.0.layer.0.SelfAttention.q.weight").shape
    bias = _tensor(tensors, f"{blocks}.0.layer.0.SelfAttention.relative_attention_bias.weight")
    layers = 0
    while f"{blocks}.{layers}.layer.0.layer_norm.weight" in tensors:
        layers += 1
    return {
        "d_model": width,
        "d_kv": inner // bias.shape[1],
        "d_ff": _tensor(tensors, f"{blocks}.0.layer.1.DenseReluDense.wi.weight").shape[0],
        "num_layers": layers,
        "num_heads": bias.shape[1],
        "relative_attention_num_buckets": bias.shape[0],
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "vocab_size": vocabulary,
    }


def _tensor(tensors: Arrays, name: str) -> npt.NDArray[Any]:
    if name not in tensors:
        raise CheckpointError(f"the parameters have none that becomes '{name}'")
    return tensors[name]


def _image_mode(encoders: Mapping[str, dict[str, Any]], where: Path) -> str:
    kinds = {name: kwargs.get("img_norm_type", "default") for name, kwargs in encoders.items()}
    chosen = set(kinds.values())
    if len(chosen) > 1 or not chosen <= set(_IMAGES):
        raise CheckpointError(f"{where}: img_norm_type is {kinds}, expected {' or '.join(_IMAGES)} for all")
    return _IMAGES[chosen.pop()]


def _action_mode(original: Mapping[str, Any]) -> str:
    """By mean and deviation, unless the data was brought into bounds."""
    data = original.get("dataset_kwargs") or {}
    for owner in (data, data.get("oxe_kwargs") or {}, data.get("dataset_kwargs") or {}):
        if str(owner.get("action_proprio_normalization_type", "normal")).lower().endswith("bounds"):
            return "QUANTILES"
    return "MEAN_STD"
