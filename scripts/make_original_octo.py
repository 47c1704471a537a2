"""Writes what the original Octo computes from the published folder that the tests make.

Run from the top of this repository where the original (octo-models/octo) and what it needs are installed,
with PYTHONPATH=test/checkpoints/conversion:

    python scripts/make_original_octo.py

The file holds, for each case, the readout and the actions of the unchanged original in float32, and the noise
that it drew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import published_octo as published
from octo.model.octo_module import OctoModule
from transformers import T5Config

FILE = Path(__file__).parent.parent / "test" / "checkpoints" / "conversion" / "original_octo.npz"
# "open the drawer" with the tests' made-up tokenizer.
IDS = [264, 210, 305, 1]
# Which observations of the window there are, and columns of the action.
CASES = {"whole": ([True, True], 7), "first missing": ([False, True], 7), "six columns": ([True, True], 6)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bound = OctoModule.create(**_model(folder)).bind({"params": published.parameters()})
        content: dict[str, Any] = {"ids": np.array(IDS, np.int32)}
        for name, (valid, columns) in CASES.items():
            content |= {f"{name}.{key}": value for key, value in _case(bound, valid, columns).items()}
    np.savez_compressed(FILE, **content)
    print(f"{FILE.name}: {FILE.stat().st_size} bytes")


def _model(folder: str) -> dict[str, Any]:
    """The configuration, with a text encoder of the tests' size in the place of T5-base."""
    encoder = Path(folder) / "t5"
    T5Config(
        vocab_size=published.VOCABULARY,
        d_model=published.TEXT_WIDTH,
        d_kv=published.TEXT_DEPTH,
        d_ff=published.TEXT_HIDDEN,
        num_layers=1,
        num_heads=published.TEXT_HEADS,
        feed_forward_proj="relu",
    ).save_pretrained(encoder)
    model: dict[str, Any] = published.config()["model"]
    model["task_tokenizers"]["language"]["kwargs"]["encoder"] = str(encoder)
    return model


def _case(bound: Any, valid: list[bool], columns: int) -> dict[str, Any]:
    padding = published.TOKENS - len(IDS)
    text = {
        "input_ids": np.array([IDS + [0] * padding], np.int32),
        "attention_mask": np.array([[1] * len(IDS) + [0] * padding], np.int32),
    }
    mask = np.array([valid])
    images = {f"image_{camera}": frames[None] for camera, frames in published.observation().items()}
    goals = {name: np.zeros_like(frames[:, 0]) for name, frames in images.items()}
    seen = {**images, "timestep_pad_mask": mask}
    outputs = bound.octo_transformer(seen, {"language_instruction": text, **goals}, mask, train=False)
    key = jax.random.PRNGKey(3)
    head = bound.heads["action"]
    actions = head.predict_action(outputs, rng=key, train=False, embodiment_action_dim=columns)
    return {
        "valid": mask[0],
        "readout": np.asarray(outputs["readout_action"].tokens)[0, -1],
        "actions": np.asarray(actions)[0, :, :columns],
        "noise": _noise(key, head.diffusion_steps),
    }


def _noise(key: Any, steps: int) -> np.ndarray:
    """What the head draws for the last observation: the first sample, then the noise of each step."""
    shape = (1, published.WINDOW, published.CHUNK * published.ACTIONS)
    drawn = []
    for _ in range(1 + steps):
        key, own = jax.random.split(key)
        drawn.append(np.asarray(jax.random.normal(own, shape))[0, -1])
    return np.stack(drawn).reshape(1 + steps, published.CHUNK, published.ACTIONS)


if __name__ == "__main__":
    main()
