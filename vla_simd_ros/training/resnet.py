"""ResNet backbones whose stages can be modulated, in PyTorch.

Batch norm is frozen, its statistics constants in training too, unless the backbone is trained from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

PUBLISHED_WIDTH = 64
"""Channels of the stem and of the first stage's blocks; each later stage has twice as many."""
# Blocks of each stage, and channels of a block's output over its width.
_LAYOUTS = {
    "resnet18": ((2, 2, 2, 2), 1),
    "resnet34": ((3, 4, 6, 3), 1),
    "resnet50": ((3, 4, 6, 3), 4),
    "resnet101": ((3, 4, 23, 3), 4),
    "resnet152": ((3, 8, 36, 3), 4),
}


class ResNet(nn.Module):
    """Images ``[B, 3, H, W]`` to the last stage's features; ``channels`` are those of each stage.

    Batch norms are frozen unless ``norm`` is another class. Stages are named ``stages.0`` to ``stages.3``, or
    ``layer1`` to ``layer4`` as torchvision names them.
    """

    def __init__(
        self,
        name: str,
        width: int = PUBLISHED_WIDTH,
        norm: Callable[[int], nn.Module] | None = None,
        *,
        torchvision_names: bool = False,
    ) -> None:
        super().__init__()
        norm = norm or FrozenBatchNorm
        blocks, expansion = _LAYOUTS[name]
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(width)
        inputs, channels, stages = width, [], []
        for stage, count in enumerate(blocks):
            layers = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(Block(inputs, width << stage, expansion, stride, norm))
                inputs = (width << stage) * expansion
            channels.append(inputs)
            stages.append(nn.Sequential(*layers))
        self.channels = tuple(channels)
        self.torchvision_names = torchvision_names
        if torchvision_names:
            for index, stage in enumerate(stages, start=1):
                self.add_module(f"layer{index}", stage)
        else:
            self.stages = nn.ModuleList(stages)

    def _stages(self) -> list[nn.Module]:
        if not self.torchvision_names:
            return list(self.stages)
        return [self.get_submodule(f"layer{index + 1}") for index in range(len(self.channels))]

    def forward(self, x: Tensor, modulation: Sequence[tuple[Tensor, Tensor]] | None) -> Tensor:
        """``modulation`` gives scale and shift ``[B, C]`` for the features of each stage."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, stride=2, padding=1)
        for index, stage in enumerate(self._stages()):
            x = stage(x)
            if modulation is not None:
                gamma, beta = modulation[index]
                x = (1 + gamma[:, :, None, None]) * x + beta[:, :, None, None]
        return x


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 where outputs are wider than the block, plus the input."""

    def __init__(
        self, inputs: int, width: int, expansion: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            shapes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        else:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.depth = len(shapes)
        for index, (source, target, kernel, step) in enumerate(shapes, start=1):
            conv = nn.Conv2d(source, target, kernel, step, padding=kernel // 2, bias=False)
            self.add_module(f"conv{index}", conv)
            self.add_module(f"bn{index}", norm(target))
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for index in range(1, self.depth + 1):
            y = self.get_submodule(f"bn{index}")(self.get_submodule(f"conv{index}")(y))
            if index < self.depth:
                y = torch.relu(y)
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class FrozenBatchNorm(nn.Module):
    """Batch norm over channels with constant statistics and coefficients."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(channels))
        self.register_buffer("bias", torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]
