"""Octo in PyTorch, as its authors describe it: one sequence of tokens under one mask, step after step.

Nothing is shared with the graph that the engine runs. Weights are taken from the folder by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.training.t5 import T5Config, T5Encoder

_EPS = 1e-6
_STANDARDIZATION_EPS = 1e-5
_GROUPS = 32
_TASK, _OBSERVATION, _READOUT = range(3)


class OctoPredictor:
    """Raw observations in, actions in robot units out, all arithmetic in ``dtype``."""

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: torch.dtype = torch.float32) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._dtype = dtype
        self._w = {name: torch.from_numpy(np.array(v)).to(dtype) for name, v in checkpoint.tensors.items()}
        with torch.inference_mode():
            self._task = self._instruction(instruction)

    @torch.inference_mode()
    def predict(
        self,
        images: Mapping[str, npt.NDArray[np.uint8]],
        valid: npt.NDArray[np.bool_] | None,
        noise: npt.NDArray[np.float32],
    ) -> npt.NDArray[Any]:
        """Actions ``[chunk, A]`` for images ``[window, H, W, 3]`` by camera.

        ``noise`` [1 + steps, chunk, width] is the first sample and what each step adds.
        """
        window = self._config["n_obs_steps"]
        seen = np.ones(window, bool) if valid is None else valid
        readout = self._transform(
            [self._step_tokens(images, step, bool(seen[step])) for step in range(window)]
        )
        sample = self._denoise(readout, torch.from_numpy(np.array(noise)).to(self._dtype))
        (unnormalizer,) = self._checkpoint.unnormalizers.values()
        scale, offset = (torch.from_numpy(v.copy()).to(self._dtype) for v in unnormalizer.affine())
        actions: npt.NDArray[Any] = (sample[:, : len(scale)] * scale + offset).numpy()
        return actions

    def _instruction(self, text: str) -> Tensor:
        ids = self._checkpoint.tokenizer().encode(text)
        padding = self._config["tokenizer_max_length"] - len(ids)
        prefix = "model.text.model."
        encoder = T5Encoder(T5Config(**self._config["text_config"]))
        weights = {name.removeprefix(prefix): w for name, w in self._w.items() if name.startswith(prefix)}
        encoder.load_state_dict(weights)
        mask = torch.tensor([[True] * len(ids) + [False] * padding])
        states = encoder.to(self._dtype)(torch.tensor([ids + [0] * padding]), mask)[0]
        return self._linear("task.language.projection", states) + self._w["model.task.language.positions"]

    def _step_tokens(
        self, images: Mapping[str, npt.NDArray[np.uint8]], step: int, seen: bool
    ) -> list[tuple[int, bool, Tensor]]:
        """Kind, whether it may be attended to, and tokens of each group of one observation."""
        groups = []
        for name, feature in self._checkpoint.cameras.items():
            module = f"observation.{feature.camera}"
            frame = images[name] if self._config["n_obs_steps"] == 1 else images[name][step]
            tokens = self._linear(f"{module}.projection", self._stem(module, feature.name, frame))
            groups.append((_OBSERVATION, seen, tokens + self._w[f"model.{module}.positions"][step]))
        if self._config["repeat_task_tokens"]:
            groups.append((_OBSERVATION, True, self._task))
        groups.append((_READOUT, True, self._w["model.readout.action.positions"][step]))
        return groups

    def _stem(self, module: str, feature: str, frame: npt.NDArray[np.uint8]) -> Tensor:
        pixels = torch.from_numpy(np.array(frame)).permute(2, 0, 1).to(self._dtype)[None] / 255
        if self._config["sees_goal"]:
            pixels = torch.cat([pixels, torch.zeros_like(pixels)], dim=1)
        normalizer = self._checkpoint.normalizers[feature]
        offset, divisor = (
            torch.from_numpy(np.tile(v, pixels.shape[1] // 3)).to(self._dtype)[:, None, None]
            for v in (normalizer.offset, normalizer.divisor)
        )
        x = (pixels - offset) / divisor
        for index in range(len(self._config["stem_channels"])):
            name = f"model.{module}.stem.{index}"
            kernel = self._w[f"{name}.conv.weight"]
            kernel = kernel - kernel.mean(dim=(1, 2, 3), keepdim=True)
            kernel = kernel / (kernel.std(dim=(1, 2, 3), correction=0, keepdim=True) + _STANDARDIZATION_EPS)
            x = functional.conv2d(x, kernel, self._w[f"{name}.conv.bias"], stride=2, padding=1)
            x = functional.group_norm(
                x, _GROUPS, self._w[f"{name}.norm.weight"], self._w[f"{name}.norm.bias"], eps=_EPS
            )
            x = torch.relu(x)
        name = f"model.{module}.stem.embedding"
        kernel = self._w[f"{name}.weight"]
        x = functional.conv2d(x, kernel, self._w[f"{name}.bias"], stride=kernel.shape[2])
        return x[0].flatten(1).T

    def _transform(self, window: list[list[tuple[int, bool, Tensor]]]) -> Tensor:
        """The last observation's readouts, averaged."""
        groups = [(_TASK, -1, True, self._task)]
        for step, tokens in enumerate(window):
            groups += [(kind, step, seen, rows) for kind, seen, rows in tokens]
        x = torch.cat([rows for *_, rows in groups])
        mask = self._mask(groups)
        for layer in range(self._config["n_layers"]):
            x = self._layer(f"transformer.layers.{layer}", x, mask)
        readouts = self._norm("transformer.norm", x)[-self._config["n_readouts"] :]
        return readouts.mean(dim=0, keepdim=True)

    def _mask(self, groups: list[tuple[int, int, bool, Tensor]]) -> Tensor:
        """Whether each token may attend to each other, token by token."""
        tokens = [(kind, step, seen) for kind, step, seen, rows in groups for _ in range(len(rows))]
        kinds = [kind for kind, _, _ in tokens]
        if not self._config["use_correct_attention"]:
            # There the first token of a group within an observation has the rules of the group before it.
            kinds = [
                kinds[i - 1] if i and tokens[i][1] == tokens[i - 1][1] else kind
                for i, kind in enumerate(kinds)
            ]
        rows = []
        for kind, (_, step, _) in zip(kinds, tokens, strict=True):
            row = []
            for other, (_, other_step, seen) in zip(kinds, tokens, strict=True):
                allowed = other == _TASK if kind == _TASK else other != _READOUT or kind == _READOUT
                row.append(allowed and other_step <= step and seen)
            rows.append(row)
        return torch.tensor(rows)

    def _layer(self, name: str, x: Tensor, mask: Tensor) -> Tensor:
        y = self._norm(f"{name}.norm1", x)
        q, k, v = (self._split(self._linear(f"{name}.self_attn.{part}", y)) for part in "qkv")
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(1, 2)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        y = (scores.softmax(dim=-1) @ v).transpose(0, 1).flatten(1)
        x = x + self._linear(f"{name}.self_attn.out", y)
        y = self._linear(f"{name}.linear1", self._norm(f"{name}.norm2", x))
        return x + self._linear(f"{name}.linear2", functional.gelu(y, approximate="tanh"))

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self._config["n_heads"], -1).transpose(0, 1)

    def _denoise(self, readout: Tensor, noise: Tensor) -> Tensor:
        steps = self._config["diffusion_steps"]
        betas = _betas(steps)
        alphas = 1 - betas
        kept = torch.cumprod(alphas, 0)
        used = self._checkpoint.features_out["action"].channels
        bound = self._config["max_action"]
        sample = noise[0]
        # The schedule is of float32 in the original, whatever computes with it.
        gain, level = 1 / torch.sqrt(alphas), torch.sqrt(1 - kept)
        share = (1 - alphas) / level
        gain, level, share, new = (x.to(self._dtype) for x in (gain, level, share, torch.sqrt(betas)))
        for index, time in enumerate(reversed(range(steps))):
            predicted = self._predicted_noise(readout, time, sample)
            sample = gain[time] * (sample - share[time] * predicted)
            if time:
                sample = sample + new[time] * noise[1 + index]
            sample = sample.clamp(-bound, bound)
            # Columns that the robot lacks are as noisy as they were in training.
            sample = torch.cat([sample[:, :used], level[time] * noise[1 + index][:, used:]], dim=1)
        return sample

    def _predicted_noise(self, readout: Tensor, time: int, sample: Tensor) -> Tensor:
        angle = 2 * math.pi * time * self._w["model.head.time.frequencies"].reshape(1, -1)
        features = torch.cat([angle.cos(), angle.sin()], dim=1)
        condition = functional.silu(self._linear("head.time.linear1", features))
        condition = self._linear("head.time.linear2", condition)
        x = self._linear("head.input", torch.cat([condition, readout, sample.reshape(1, -1)], dim=1))
        for block in range(self._config["head_blocks"]):
            name = f"head.blocks.{block}"
            y = self._linear(f"{name}.linear1", self._norm(f"{name}.norm", x))
            x = x + self._linear(f"{name}.linear2", functional.silu(y))
        return self._linear("head.output", functional.silu(x)).reshape(sample.shape)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self._w[f"model.{name}.weight"], self._w[f"model.{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self._w[f"model.{name}.weight"], self._w[f"model.{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps=_EPS)


def _betas(steps: int) -> Tensor:
    """The cosine schedule, in the float32 in which the networks are trained."""
    time = torch.arange(steps + 1, dtype=torch.float64) / steps
    left = torch.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2
    return (1 - left[1:] / left[:-1]).clamp(0, 0.999).to(torch.float32)
