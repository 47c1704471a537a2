"""ResNet image backbones with frozen batch norm or group norm, up to the last stage's feature map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.weights import Weights

PUBLISHED_WIDTH = 64
"""Channels of the stem and of the first stage's blocks; each later stage has twice as many."""
_STAGES = 4
_NORM_EPS = 1e-5
# Channels in a group, where group norm stands in for batch norm.
_GROUP_WIDTH = 16


@dataclass(frozen=True)
class _Layout:
    blocks: tuple[int, int, int, int]
    bottleneck: bool

    @property
    def expansion(self) -> int:
        return 4 if self.bottleneck else 1


_LAYOUTS = {
    "resnet18": _Layout((2, 2, 2, 2), bottleneck=False),
    "resnet34": _Layout((3, 4, 6, 3), bottleneck=False),
    "resnet50": _Layout((3, 4, 6, 3), bottleneck=True),
    "resnet101": _Layout((3, 4, 23, 3), bottleneck=True),
    "resnet152": _Layout((3, 8, 36, 3), bottleneck=True),
}


@dataclass(frozen=True)
class _Geometry:
    """How a residual block's 3x3 convolution walks over the image."""

    stride: int
    dilation: int


class ResNet:
    """A backbone whose tensors are named as torchvision does; ``stage_name`` names stage 0 to 3, ``stem``
    the first convolution and its norm.

    ``width`` scales all stages, see `PUBLISHED_WIDTH`. ``dilated`` replaces the last stage's stride by a
    dilation, ``group_norm`` every batch norm by a group norm of the same name. Raises CheckpointError for an
    unknown ``kind``, or one that cannot be dilated.
    """

    def __init__(
        self,
        kind: str,
        weights: Weights,
        stage_name: Callable[[int], str],
        *,
        stem: tuple[str, str] = ("conv1", "bn1"),
        width: int = PUBLISHED_WIDTH,
        dilated: bool = False,
        group_norm: bool = False,
    ) -> None:
        if kind not in _LAYOUTS:
            raise CheckpointError(f"vision_backbone is '{kind}', expected one of {', '.join(_LAYOUTS)}")
        self._layout = _LAYOUTS[kind]
        if dilated and not self._layout.bottleneck:
            raise CheckpointError(
                f"replace_final_stride_with_dilation is set with vision_backbone '{kind}', "
                "expected a backbone of bottleneck blocks (resnet50, resnet101, resnet152)"
            )
        self._weights = weights
        self._stage_name = stage_name
        self._stem = stem
        self._group_norm = group_norm
        self._dilated = dilated
        self._widths = tuple(width << stage for stage in range(_STAGES))
        self.channels = tuple(width * self._layout.expansion for width in self._widths)
        """Channels of each stage's feature map."""

    def build(
        self, b: Builder, image: Tensor, block: str, film: Sequence[tuple[Tensor, Tensor]] | None = None
    ) -> Tensor:
        """The last feature map of ``image`` [H, W, 3]; ``film`` gives each stage's gamma and beta [1, C].

        ``block`` prefixes the blocks' names ("backbone.front" gives "backbone.front.layer1.0").
        """
        with b.block(f"{block}.stem"):
            x = self._convolution(b, image, *self._stem, self._widths[0], 7, _Geometry(2, 1), name="conv")
            x = b.activation("relu", x, name="relu")
            x = b.max_pool2d(x, kernel=3, stride=2, padding=1, name="pool")
        for stage, count in enumerate(self._layout.blocks):
            for index in range(count):
                with b.block(f"{block}.layer{stage + 1}.{index}"):
                    x = self._residual_block(b, x, stage, index)
                    if film is not None and index == count - 1:
                        x = b.film(x, *film[stage], name="film")
        return x

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the last feature map of an image: stem, pooling and stages halve both, rounding
        up."""
        halvings = 2 + sum(self._geometry(stage, 0).stride > 1 for stage in range(_STAGES))
        return -(-height // 2**halvings), -(-width // 2**halvings)

    def _geometry(self, stage: int, index: int) -> _Geometry:
        last_dilated = self._dilated and stage == _STAGES - 1
        stride = 2 if stage > 0 and index == 0 and not last_dilated else 1
        # A dilated stage's first block still sees undilated features.
        return _Geometry(stride, 2 if last_dilated and index > 0 else 1)

    def _residual_block(self, b: Builder, x: Tensor, stage: int, index: int) -> Tensor:
        prefix = f"{self._stage_name(stage)}.{index}"
        width, geometry = self._widths[stage], self._geometry(stage, index)
        plain = _Geometry(1, 1)
        if self._layout.bottleneck:
            layers = [(width, 1, plain), (width, 3, geometry), (self.channels[stage], 1, plain)]
        else:
            layers = [(width, 3, geometry), (width, 3, plain)]
        y = x
        for number, (outputs, kernel, walk) in enumerate(layers, start=1):
            if number > 1:
                y = b.activation("relu", y, name=f"relu{number - 1}")
            names = f"{prefix}.conv{number}", f"{prefix}.bn{number}"
            y = self._convolution(b, y, *names, outputs, kernel, walk, name=f"conv{number}")
        if geometry.stride > 1 or x.shape[2] != self.channels[stage]:
            names = f"{prefix}.downsample.0", f"{prefix}.downsample.1"
            walk = _Geometry(geometry.stride, 1)
            x = self._convolution(b, x, *names, self.channels[stage], 1, walk, name="downsample")
        return b.activation("relu", b.add(y, x, name="sum"), name="relu")

    def _convolution(
        self,
        b: Builder,
        x: Tensor,
        conv: str,
        norm: str,
        outputs: int,
        kernel: int,
        walk: _Geometry,
        *,
        name: str,
    ) -> Tensor:
        """A convolution that keeps the image's size up to its stride, and its norm."""
        filters = self._weights.filters(b, f"{conv}.weight", outputs, x.shape[2], kernel)
        padding = walk.dilation * (kernel // 2)
        y = b.conv2d(
            x, filters, stride=walk.stride, padding=padding, dilation=walk.dilation, name=f"{name}.product"
        )
        if self._group_norm:
            weight, bias = (
                self._weights.constant(b, f"{norm}.{part}", outputs) for part in ("weight", "bias")
            )
            return b.group_norm(y, weight, bias, groups=outputs // _GROUP_WIDTH, eps=_NORM_EPS, name=name)
        return self._batch_norm(b, y, norm, name)

    def _batch_norm(self, b: Builder, x: Tensor, norm: str, name: str) -> Tensor:
        channels = x.shape[2]
        parameters = [
            self._weights.constant(b, f"{norm}.{part}", channels)
            for part in ("weight", "bias", "running_mean", "running_var")
        ]
        least = self._weights.array(f"{norm}.running_var", (channels,)).min()
        if least < 0:
            raise CheckpointError(
                f"image backbone: tensor '{norm}.running_var' has the value {least:g}, expected 0 or more"
            )
        return b.batch_norm(x, *parameters, eps=_NORM_EPS, name=name)
