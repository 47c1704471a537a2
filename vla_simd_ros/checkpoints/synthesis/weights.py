"""Random weights, layer by layer, at the scales at which training frameworks initialize them.

A tensor's values depend on the seed and its name alone, not on the tensors made before it, and are
drawn from the bits of numpy's PCG64, whose stream numpy guarantees. So a seed names the same
checkpoint on every machine.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

# More than any machine holds, and few enough for numpy to count.
_MOST_VALUES = 1 << 48
# Gain of queries and keys. Freshly initialized attention is nearly uniform and would make every action
# of a chunk alike; trained attention is not.
_SHARPNESS = np.float32(1.5)


def require_room(name: str, shape: tuple[int, ...]) -> None:
    """Raise MemoryError for a tensor too large to be tried."""
    if math.prod(shape) > _MOST_VALUES:
        raise MemoryError(f"tensor '{name}' of shape {list(shape)}")


class WeightMaker:
    """Collects named float32 tensors; each method adds the tensors of one kind of layer."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.tensors: dict[str, F32] = {}

    def draw(self, name: str, shape: tuple[int, ...], low: float, high: float) -> F32:
        """Uniform values in ``[low, high)``; 24 random bits each."""
        require_room(name, shape)
        size = math.prod(shape)
        bits = np.random.PCG64(np.random.SeedSequence([self._seed, zlib.crc32(name.encode())]))
        words = bits.random_raw((size + 1) // 2).astype("<u8").view("<u4")[:size]
        unit = (words >> 8).astype(np.float32) * np.float32(2.0**-24)
        values: F32 = np.float32(low) + unit * np.float32(high - low)
        return values.reshape(shape)

    def uniform(self, name: str, shape: tuple[int, ...], bound: float, centre: float = 0.0) -> None:
        self.tensors[name] = self.draw(name, shape, centre - bound, centre + bound)

    def spread(self, name: str, shape: tuple[int, ...], deviation: float) -> None:
        """Zero-mean values of the given standard deviation."""
        self.uniform(name, shape, deviation * math.sqrt(3))

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        bound = 1 / math.sqrt(inputs)
        self.uniform(f"{name}.weight", (outputs, inputs), bound)
        self.uniform(f"{name}.bias", (outputs,), bound)

    def xavier_linear(self, name: str, inputs: int, outputs: int) -> None:
        self.uniform(f"{name}.weight", (outputs, inputs), math.sqrt(6 / (inputs + outputs)))
        self.uniform(f"{name}.bias", (outputs,), 1 / math.sqrt(inputs))

    def unit_linear(self, name: str, inputs: int, outputs: int) -> None:
        """A linear layer that keeps the size of activations."""
        self.spread(f"{name}.weight", (outputs, inputs), 1 / math.sqrt(inputs))
        self.uniform(f"{name}.bias", (outputs,), 0.02)

    def sharp_linear(self, name: str, width: int, bias: bool = True) -> None:
        """A projection to queries or keys that is stored on its own."""
        self.spread(f"{name}.weight", (width, width), float(_SHARPNESS) / math.sqrt(width))
        if bias:
            self.uniform(f"{name}.bias", (width,), 0.02)

    def embedding(self, name: str, rows: int, width: int) -> None:
        self.spread(f"{name}.weight", (rows, width), 1.0)

    def convolution(self, name: str, inputs: int, outputs: int, kernel: int) -> None:
        """Without bias, keeping the size of activations through a ReLU."""
        self.spread(f"{name}.weight", (outputs, inputs, kernel, kernel), math.sqrt(2 / (inputs * kernel**2)))

    def line_convolution(self, name: str, inputs: int, outputs: int, kernel: int) -> None:
        """Along a line and with bias, keeping the size of activations."""
        self.spread(f"{name}.weight", (outputs, inputs, kernel), (inputs * kernel) ** -0.5)
        self.uniform(f"{name}.bias", (outputs,), 0.02)

    def batch_norm(self, name: str, channels: int, scale: float = 1.0) -> None:
        """Frozen batch norm with statistics like those of a trained network; ``scale`` is its mean gain."""
        self.group_norm(name, channels, scale)
        self.uniform(f"{name}.running_mean", (channels,), 0.2)
        self.uniform(f"{name}.running_var", (channels,), 0.5, 1.0)

    def group_norm(self, name: str, channels: int, scale: float = 1.0) -> None:
        """Gains, ``scale`` on average, and shifts."""
        self.uniform(f"{name}.weight", (channels,), 0.2 * scale, scale)
        self.uniform(f"{name}.bias", (channels,), 0.1)

    def layer_norm(self, name: str, width: int) -> None:
        self.uniform(f"{name}.weight", (width,), 0.1, 1.0)
        self.uniform(f"{name}.bias", (width,), 0.1)

    def attention(self, name: str, width: int) -> None:
        """Multi-head attention with query, key and value projections in one matrix."""
        projections = self.draw(f"{name}.in_proj_weight", (3 * width, width), -1, 1)
        projections *= np.float32(math.sqrt(3 / width))
        projections[: 2 * width] *= _SHARPNESS
        self.tensors[f"{name}.in_proj_weight"] = projections
        self.uniform(f"{name}.in_proj_bias", (3 * width,), 0.02)
        self.uniform(f"{name}.out_proj.weight", (width, width), math.sqrt(3 / width))
        self.uniform(f"{name}.out_proj.bias", (width,), 0.02)
