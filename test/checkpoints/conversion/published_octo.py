"""Writes a folder in the layout in which Octo is published, with random parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

Tree = dict[str, Any]
WIDTH, HEADS, LAYERS, HIDDEN, HORIZON = 48, 4, 2, 96, 3
STEM, STEM_WIDTH = (32, 32, 64, 32), 40
TEXT_WIDTH, TEXT_HEADS, TEXT_DEPTH, TEXT_HIDDEN, VOCABULARY, TOKENS = 24, 2, 8, 40, 640, 8
TIME, HEAD, BLOCKS, CHUNK, ACTIONS = 8, 64, 2, 4, 7
IMAGES = {"primary": (32, 48), "wrist": (16, 16)}
WINDOW = 2


class _Parameters:
    """Random arrays with the shapes that Flax's modules give theirs."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(4)

    def array(self, *shape: int) -> np.ndarray:
        return self._rng.uniform(-0.3, 0.3, shape).astype(np.float32)

    def dense(self, inputs: int, outputs: int) -> Tree:
        return {"kernel": self.array(inputs, outputs), "bias": self.array(outputs)}

    def convolution(self, side: int, inputs: int, outputs: int) -> Tree:
        return {"kernel": self.array(side, side, inputs, outputs), "bias": self.array(outputs)}

    def norm(self, width: int) -> Tree:
        return {"scale": 1 + self.array(width), "bias": self.array(width)}


def parameters(goal: bool = True) -> Tree:
    """The tree of parameters."""
    make = _Parameters()
    transformer: Tree = {
        "BlockTransformer_0": {"Transformer_0": _transformer(make)},
        "task_tokenizers_language": {"hf_model": _text(make)},
        "task_language_projection": make.dense(TEXT_WIDTH, WIDTH),
        "task_language_pos_embedding": make.array(1, TOKENS, WIDTH),
        "readout_action_pos_embedding": make.array(1, HORIZON, 1, WIDTH),
    }
    for camera, (height, width) in IMAGES.items():
        patches = height // 16 * (width // 16)
        transformer |= {
            f"observation_tokenizers_{camera}": {"SmallStem16_0": _stem(make, 6 if goal else 3)},
            f"obs_{camera}_projection": make.dense(STEM_WIDTH, WIDTH),
            f"obs_{camera}_pos_embedding": make.array(1, HORIZON, patches, WIDTH),
        }
    return {"octo_transformer": transformer, "heads_action": {"diffusion_model": _head(make)}}


def _stem(make: _Parameters, inputs: int) -> Tree:
    stem: Tree = {"embedding": make.convolution(1, STEM[-1], STEM_WIDTH)}
    for index, (before, after) in enumerate(zip((inputs, *STEM), STEM, strict=False)):
        stem[f"StdConv_{index}"] = make.convolution(3, before, after)
        stem[f"GroupNorm_{index}"] = make.norm(after)
    return stem


def _transformer(make: _Parameters) -> Tree:
    depth = WIDTH // HEADS
    layers: Tree = {"encoder_norm": make.norm(WIDTH)}
    for index in range(LAYERS):
        split = {
            part: {"kernel": make.array(WIDTH, HEADS, depth), "bias": make.array(HEADS, depth)}
            for part in ("query", "key", "value")
        }
        joined = {"kernel": make.array(HEADS, depth, WIDTH), "bias": make.array(WIDTH)}
        layers[f"encoderblock_{index}"] = {
            "LayerNorm_0": make.norm(WIDTH),
            "LayerNorm_1": make.norm(WIDTH),
            "MultiHeadDotProductAttention_0": {**split, "out": joined},
            "MlpBlock_0": {"Dense_0": make.dense(WIDTH, HIDDEN), "Dense_1": make.dense(HIDDEN, WIDTH)},
        }
    return layers


def _text(make: _Parameters) -> Tree:
    inner = TEXT_HEADS * TEXT_DEPTH
    attention: Tree = {part: {"kernel": make.array(TEXT_WIDTH, inner)} for part in "qkv"}
    attention["o"] = {"kernel": make.array(inner, TEXT_WIDTH)}
    attention["relative_attention_bias"] = {"embedding": make.array(32, TEXT_HEADS)}
    dense = {
        "wi": {"kernel": make.array(TEXT_WIDTH, TEXT_HIDDEN)},
        "wo": {"kernel": make.array(TEXT_HIDDEN, TEXT_WIDTH)},
    }
    norm = {"weight": 1 + make.array(TEXT_WIDTH)}
    layers = {
        "0": {"SelfAttention": attention, "layer_norm": norm},
        "1": {"DenseReluDense": dense, "layer_norm": norm},
    }
    encoder = {"block": {"0": {"layer": layers}}, "final_layer_norm": norm}
    return {"shared": {"embedding": make.array(VOCABULARY, TEXT_WIDTH)}, "encoder": encoder}


def _head(make: _Parameters) -> Tree:
    values = CHUNK * ACTIONS
    network: Tree = {"Dense_0": make.dense(TIME + WIDTH + values, HEAD), "Dense_1": make.dense(HEAD, values)}
    network["Dense_1"]["kernel"] *= np.float32(0.3)
    # swish(x) - swish(-x) is x: what is predicted is the sample for the greater part, as by a trained head.
    through = np.eye(values, dtype=np.float32)
    network["Dense_0"]["kernel"][-values:, : 2 * values] += np.concatenate([through, -through], axis=1)
    network["Dense_1"]["kernel"][: 2 * values] += np.concatenate([through, -through])
    for block in range(BLOCKS):
        network[f"MLPResNetBlock_{block}"] = {
            "LayerNorm_0": make.norm(HEAD),
            "Dense_0": make.dense(HEAD, 4 * HEAD),
            "Dense_1": make.dense(4 * HEAD, HEAD),
        }
        network[f"MLPResNetBlock_{block}"]["Dense_1"]["kernel"] *= np.float32(0.2)
    return {
        "time_preprocess": {"kernel": make.array(TIME // 2, 1)},
        "cond_encoder": {"Dense_0": make.dense(TIME, 2 * TIME), "Dense_1": make.dense(2 * TIME, TIME)},
        "reverse_network": network,
    }


_MODULES = {
    "ImageTokenizer": "tokenizers",
    "LanguageTokenizer": "tokenizers",
    "SmallStem16": "vit_encoders",
    "DiffusionActionHead": "action_heads",
}


def _module(name: str, **kwargs: Any) -> Tree:
    module = f"octo.model.components.{_MODULES[name]}"
    return {"module": module, "name": name, "args": [], "kwargs": kwargs}


def config() -> Tree:
    """config.json, as far as a reader needs it."""
    cameras = {
        camera: _module(
            "ImageTokenizer",
            obs_stack_keys=[f"image_{camera}"],
            task_stack_keys=[f"image_{camera}"],
            encoder=_module("SmallStem16", features=list(STEM), num_features=STEM_WIDTH),
        )
        for camera in IMAGES
    }
    head = _module(
        "DiffusionActionHead",
        readout_key="readout_action",
        use_map=False,
        action_horizon=CHUNK,
        action_dim=ACTIONS,
        time_dim=TIME,
        hidden_dim=HEAD,
        num_blocks=BLOCKS,
        diffusion_steps=6,
    )
    sizes = {
        "num_layers": LAYERS,
        "num_attention_heads": HEADS,
        "mlp_dim": HIDDEN,
        "add_position_embedding": False,
    }
    model = {
        "observation_tokenizers": cameras,
        "task_tokenizers": {"language": _module("LanguageTokenizer", encoder="t5-base")},
        "heads": {"action": head},
        "readouts": {"action": 1},
        "transformer_kwargs": sizes,
        "token_embedding_size": WIDTH,
        "max_horizon": HORIZON,
        "repeat_task_tokens": True,
        "use_correct_attention": True,
    }
    return {"model": model, "window_size": WINDOW, "dataset_kwargs": {"oxe_kwargs": None}}


def observation(seed: int = 0) -> Tree:
    """Frames of a window."""
    rng = np.random.default_rng(seed)
    return {
        camera: rng.integers(0, 256, (WINDOW, *size, 3), dtype=np.uint8) for camera, size in IMAGES.items()
    }


def statistics(width: int = ACTIONS, seed: int = 0) -> Tree:
    """Statistics of one data set; the last column is left as it is."""
    rng = np.random.default_rng(seed)
    names = ("mean", "std", "min", "max", "p01", "p99")
    action: Tree = {name: rng.uniform(0.5, 1.5, width).round(3).tolist() for name in names}
    return {"action": {**action, "mask": [True] * (width - 1) + [False]}, "num_transitions": 9}


def example() -> Tree:
    """One batch that the model was built from."""
    observation: Tree = {
        f"image_{camera}": np.zeros((1, WINDOW, *size, 3), np.uint8) for camera, size in IMAGES.items()
    }
    observation["timestep_pad_mask"] = np.ones((1, WINDOW), bool)
    return {"observation": observation, "action": np.zeros((1, WINDOW, CHUNK, ACTIONS), np.float32)}


def write(folder: Path, **parts: Any) -> Path:
    """Write a published folder; ``parts`` replace what is in it by default."""
    made = {
        "config": config(),
        "statistics": {"bridge": statistics(), "kuka": statistics(seed=1)},
        "parameters": parameters(),
        "example": example(),
        **parts,
    }
    (folder / "300" / "default").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(made["config"]))
    (folder / "dataset_statistics.json").write_text(json.dumps(made["statistics"]))
    (folder / "example_batch.msgpack").write_bytes(packed(made["example"]))
    (folder / "300" / "default" / "checkpoint").write_bytes(packed(made["parameters"]))
    return folder


def packed(tree: Mapping[str, Any]) -> bytes:
    """A tree of arrays as Flax serializes it: extension 1 is [shape, name of the type, bytes]."""

    def extension(value: Any) -> msgpack.ExtType:
        content = (value.shape, value.dtype.name, value.tobytes())
        return msgpack.ExtType(1, msgpack.packb(content, use_bin_type=True))

    data: bytes = msgpack.packb(tree, default=extension, strict_types=True)
    return data


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value
