"""Batches of demonstrations as the network takes them; each depends on the seed and its number alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vla_simd_ros.training.demonstrations import ACTION, IMAGES, STATE, Demonstrations, chunks, episode_ends
from vla_simd_ros.training.impact import ImpactInputs
from vla_simd_ros.training.recipe import Recipe

_EPS = 1e-8
_WHITE = 255.0


@dataclass(frozen=True, eq=False)
class Batch:
    """Normalized inputs, wanted actions [B, chunk, A], and which of these are padding [B, chunk]."""

    inputs: ImpactInputs
    actions: Tensor
    is_pad: Tensor


class Order:
    """Which of ``rows`` a training step takes: an epoch without repetition after the other."""

    def __init__(self, rows: npt.NDArray[np.int64], recipe: Recipe) -> None:
        self._rows = rows
        self._recipe = recipe
        self._epoch = -1
        self._order = rows

    def of(self, step: int) -> npt.NDArray[np.int64]:
        """The rows of training step ``step``."""
        size = self._recipe.batch_size
        return np.array([self._row(place) for place in range(step * size, (step + 1) * size)])

    def _row(self, place: int) -> int:
        epoch, index = divmod(place, len(self._rows))
        if epoch != self._epoch:
            generator = np.random.default_rng([self._recipe.seed, 0, epoch])
            self._order, self._epoch = generator.permutation(self._rows), epoch
        return int(self._order[index])


class Batches:
    """Draws observations of the chosen episodes, an epoch without repetition, and normalizes them.

    ``texts`` holds the encoded sentence of each of the demonstrations' tasks, as `ImpactInputs` takes it, one
    row each; empty for a policy that reads none.
    """

    def __init__(
        self,
        demonstrations: Demonstrations,
        episodes: frozenset[int],
        statistics: Mapping[str, npt.NDArray[np.float32]],
        recipe: Recipe,
        chunk: int,
        texts: Mapping[str, Tensor],
        device: torch.device,
    ) -> None:
        self._data = demonstrations
        self._recipe = recipe
        self._chunk = chunk
        self._texts = {name: values.to(device) for name, values in texts.items()}
        self._device = device
        self._ends = episode_ends(demonstrations.episode)
        self.rows = np.flatnonzero(np.isin(demonstrations.episode[demonstrations.seen], list(episodes)))
        """Observations that are drawn from."""
        self._mean, self._divisor = (
            {
                name: torch.from_numpy(np.array(statistics[f"{name}.{kind}"]) + np.float32(eps)).to(device)
                for name in (STATE, ACTION, *(IMAGES + camera for camera in demonstrations.images))
            }
            for kind, eps in (("mean", 0.0), ("std", _EPS))
        )
        self._order = Order(self.rows, recipe)

    def training(self, step: int) -> Batch:
        """The batch of training step ``step``, with noise and shifts."""
        return self.batch(self._order.of(step), np.random.default_rng([self._recipe.seed, 1, step]))

    def batch(self, rows: npt.NDArray[np.int64], noise: np.random.Generator | None = None) -> Batch:
        """The observations ``rows``; as they were recorded without ``noise``."""
        frames = self._data.seen[rows]
        actions, is_pad = chunks(self._data, frames, self._chunk, self._ends)
        state = self._normalized(STATE, self._data.state[frames])
        if noise is not None and self._recipe.state_noise:
            drawn = noise.normal(0, self._recipe.state_noise, state.shape).astype(np.float32)
            state = state + torch.from_numpy(drawn).to(self._device)
        images = [
            self._image(IMAGES + camera, self._pictures(images, rows, noise), noise)
            for camera, images in self._data.images.items()
        ]
        tasks = torch.from_numpy(self._data.task[frames]).to(self._device)
        texts: dict[str, Any] = {name: values[tasks] for name, values in self._texts.items()}
        inputs = ImpactInputs(images, state, None, **texts)
        return Batch(inputs, self._normalized(ACTION, actions), torch.from_numpy(is_pad).to(self._device))

    def _normalized(self, name: str, values: npt.NDArray[np.float32]) -> Tensor:
        return (torch.from_numpy(values).to(self._device) - self._mean[name]) / self._divisor[name]

    def _pictures(
        self, images: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], noise: np.random.Generator | None
    ) -> npt.NDArray[np.uint8]:
        most = self._recipe.image_shift
        if noise is None or not most:
            return images[rows]
        shifts = noise.integers(-most, most + 1, (len(rows), 2))
        return np.stack([shifted(images[row], shift) for row, shift in zip(rows, shifts, strict=True)])

    def _image(self, name: str, pictures: npt.NDArray[np.uint8], noise: np.random.Generator | None) -> Tensor:
        """[B, 3, H, W], the colours innermost in memory, where convolutions are fastest."""
        x = torch.from_numpy(pictures).to(self._device).permute(0, 3, 1, 2).float() / _WHITE
        share = self._recipe.image_brightness
        if noise is not None and share:
            factors = noise.uniform(1 - share, 1 + share, (len(pictures), 1, 1, 1)).astype(np.float32)
            x = (x * torch.from_numpy(factors).to(self._device)).clamp(max=1)
        return (x - self._mean[name]) / self._divisor[name]


def shifted(image: npt.NDArray[np.uint8], by: Sequence[int]) -> npt.NDArray[np.uint8]:
    """The picture moved down and right by some pixels; what was at its edge fills the gap."""
    height, width = image.shape[:2]
    rows = np.clip(np.arange(height) - by[0], 0, height - 1)
    columns = np.clip(np.arange(width) - by[1], 0, width - 1)
    return np.asarray(image[rows][:, columns])
