"""Writes a checkpoint folder in LeRobot's format."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.checkpoint import CONFIG, WEIGHTS
from vla_simd_ros.checkpoints.processors import POSTPROCESSOR, PREPROCESSOR
from vla_simd_ros.checkpoints.sharded import INDEX
from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.weights import F32


def write_folder(folder: Path, recipe: Recipe, statistics: dict[str, F32], dtype: str) -> None:
    """Write ``recipe`` to ``folder``, weights stored as ``dtype``; the folder appears only when complete.

    Raises `OptionError` if ``folder`` exists and is not an empty folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError(f"{folder}: exists already, expected a new or empty folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write_files(partial, recipe, statistics, dtype)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_files(folder: Path, recipe: Recipe, statistics: dict[str, F32], dtype: str) -> None:
    _write_json(folder / CONFIG, recipe.config)
    stored = {
        name: next((kind for prefix, kind in recipe.stored.items() if name.startswith(prefix)), dtype)
        for name in recipe.tensors
    }
    if recipe.shard_bytes is None:
        _write_tensors(folder / WEIGHTS, recipe.tensors, stored)
    else:
        _write_shards(folder, recipe.tensors, stored, recipe.shard_bytes)
    for name, steps in ((PREPROCESSOR, recipe.preprocessor), (POSTPROCESSOR, recipe.postprocessor)):
        if steps is not None:
            _write_processor(folder, name, steps, statistics)
    for name, content in recipe.files.items():
        write_file(folder / name, content)


def _write_shards(folder: Path, tensors: dict[str, F32], stored: dict[str, str], most: int) -> None:
    """Several safetensors files and the index that says which tensor is where, as the transformers library
    names them."""
    shards: list[dict[str, F32]] = [{}]
    filled = 0
    for key, values in tensors.items():
        if shards[-1] and filled + values.nbytes > most:
            shards.append({})
            filled = 0
        shards[-1][key] = values
        filled += values.nbytes
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_tensors(folder / name, shard, stored)
        places |= dict.fromkeys(shard, name)
    total = sum(values.nbytes for values in tensors.values())
    _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": places})


def _write_processor(
    folder: Path, file: str, steps: list[dict[str, Any]], statistics: dict[str, F32]
) -> None:
    """A processor file, and beside it one state file for each of its steps that normalizes."""
    name = file.removesuffix(".json")
    entries = []
    for index, step in enumerate(steps):
        entry = dict(step)
        if "norm_map" in step["config"]:
            entry["state_file"] = f"{name}_step_{index}_{step['registry_name']}.safetensors"
            _write_tensors(folder / entry["state_file"], statistics, dict.fromkeys(statistics, "fp32"))
        entries.append(entry)
    _write_json(folder / file, {"name": name, "steps": entries})


def write_file(path: Path, content: Any) -> None:
    """A text, a copy of a file, or JSON."""
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        _write_json(path, content)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_tensors(path: Path, tensors: dict[str, F32], dtypes: dict[str, str]) -> None:
    """A safetensors file. Written here because the library's numpy interface has no bfloat16."""
    stored = {key: np.ascontiguousarray(_STORED[dtypes[key]][1](values)) for key, values in tensors.items()}
    # The metadata that PyTorch's loaders ask for.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for key, values in stored.items():
        begin, end = end, end + values.nbytes
        header[key] = {
            "dtype": _STORED[dtypes[key]][0],
            "shape": list(values.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in stored.values():
            file.write(values.data)


def to_bfloat16(values: F32) -> npt.NDArray[np.uint16]:
    """The upper halves of the float32 bits, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    rounded: npt.NDArray[np.uint32] = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    return (rounded >> 16).astype(np.uint16)


_STORED: dict[str, Any] = {
    "fp32": ("F32", lambda values: values),
    "fp16": ("F16", lambda values: values.astype(np.float16)),
    "bf16": ("BF16", to_bfloat16),
}
