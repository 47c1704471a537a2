"""Random ResNet backbones, with torchvision's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

PUBLISHED_WIDTH = 64
"""Channels of the stem and of the first stage's blocks; each later stage has twice as many."""
_STAGES = 4
# The last norm of a block is damped, as training does, or the residual sums would grow with depth.
_RESIDUAL_SCALE = 0.5


@dataclass(frozen=True)
class _Layout:
    blocks: tuple[int, int, int, int]
    expansion: int


_LAYOUTS = {
    "resnet18": _Layout((2, 2, 2, 2), 1),
    "resnet34": _Layout((3, 4, 6, 3), 1),
    "resnet50": _Layout((3, 4, 6, 3), 4),
    "resnet101": _Layout((3, 4, 23, 3), 4),
    "resnet152": _Layout((3, 8, 36, 3), 4),
}


def stage_channels(backbone: str, width: int = PUBLISHED_WIDTH) -> tuple[int, ...]:
    """Channels of each stage's features. Raises `OptionError` for an unknown backbone."""
    return tuple((width << stage) * _layout(backbone).expansion for stage in range(_STAGES))


def feature_map_size(height: int, width: int) -> tuple[int, int]:
    """Pixels of the last stage's feature map; stem, pooling and three stages halve the image, rounding up."""
    for _ in range(5):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width


def add_resnet(
    make: WeightMaker,
    prefix: str,
    backbone: str,
    stage_name: Callable[[int], str],
    *,
    stem: tuple[str, str] = ("conv1", "bn1"),
    base: int = PUBLISHED_WIDTH,
    group_norm: bool = False,
) -> None:
    """Add stem and stages under ``prefix``; ``stage_name`` names stage 0 to 3, ``stem`` what precedes them.

    ``base`` scales all stages, see `PUBLISHED_WIDTH`.

    Batch norms, with their statistics, unless ``group_norm``.
    """
    layout = _layout(backbone)
    norm = make.group_norm if group_norm else make.batch_norm
    make.convolution(f"{prefix}.{stem[0]}", 3, base, 7)
    norm(f"{prefix}.{stem[1]}", base)
    channels = base
    for stage, blocks in enumerate(layout.blocks):
        width = base << stage
        for block in range(blocks):
            name = f"{prefix}.{stage_name(stage)}.{block}"
            stride = stage > 0 and block == 0
            _add_block(make, norm, name, channels, width, layout.expansion, stride=stride)
            channels = width * layout.expansion


def _add_block(
    make: WeightMaker,
    norm: Callable[..., None],
    name: str,
    channels: int,
    width: int,
    expansion: int,
    stride: bool,
) -> None:
    outputs = width * expansion
    if expansion == 1:
        kernels = [(channels, width, 3), (width, width, 3)]
    else:
        kernels = [(channels, width, 1), (width, width, 3), (width, outputs, 1)]
    for index, (inputs, filters, kernel) in enumerate(kernels, start=1):
        make.convolution(f"{name}.conv{index}", inputs, filters, kernel)
        last = index == len(kernels)
        norm(f"{name}.bn{index}", filters, _RESIDUAL_SCALE if last else 1.0)
    if stride or channels != outputs:
        make.convolution(f"{name}.downsample.0", channels, outputs, 1)
        norm(f"{name}.downsample.1", outputs, _RESIDUAL_SCALE)


def _layout(backbone: str) -> _Layout:
    if backbone not in _LAYOUTS:
        raise OptionError(f"backbone '{backbone}' is unknown, expected one of {', '.join(_LAYOUTS)}")
    return _LAYOUTS[backbone]
