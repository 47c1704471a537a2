from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.blocks.resnet import ResNet
from vla_simd_ros.policies.weights import Weights


class Hollow:
    """Zeros of any shape; remembers what it was asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        self.names.append(name)
        return expected or ()

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        return np.zeros(shape or (), np.float32)

    def rows(self, name: str, start: int, stop: int) -> Array:
        raise AssertionError(name)

    def mapped(self, name: str) -> Array:
        raise AssertionError(name)

    def check_mapped(self) -> None:
        raise AssertionError


def build(kind: str, height: int, width: int, dilated: bool = False) -> tuple[Graph, Tensor, list[str]]:
    source = Hollow()
    backbone = ResNet(kind, Weights(source, "net."), lambda stage: f"layer{stage + 1}", dilated=dilated)
    b = Builder()
    image = b.input("x", (height, width, 3), DType.F32, Lifetime.QUERY)
    result = backbone.build(b, image, "backbone")
    b.output("y", result)
    return b.graph(), result, source.names


@pytest.mark.parametrize(
    ("kind", "size", "dilated", "expected"),
    [
        ("resnet18", (480, 640), False, (15, 20, 512)),
        ("resnet18", (33, 65), False, (2, 3, 512)),
        ("resnet34", (1, 1), False, (1, 1, 512)),
        ("resnet50", (64, 96), False, (2, 3, 2048)),
        ("resnet50", (64, 96), True, (4, 6, 2048)),
    ],
)
def test_feature_maps_of_any_image(
    kind: str, size: tuple[int, int], dilated: bool, expected: tuple[int, ...]
) -> None:
    _, result, _ = build(kind, *size, dilated=dilated)
    assert result.shape == expected


@pytest.mark.parametrize(
    ("kind", "convolutions"),
    [("resnet18", 20), ("resnet34", 36), ("resnet50", 53), ("resnet101", 104), ("resnet152", 155)],
)
def test_depths(kind: str, convolutions: int) -> None:
    graph, _, names = build(kind, 32, 32)
    assert len([op for op in graph.ops if op.kind == "conv2d"]) == convolutions
    assert len([op for op in graph.ops if op.kind == "batch_norm"]) == convolutions
    assert len(set(names)) == 5 * convolutions


def walks(graph: Graph, block: str) -> dict[str, tuple[Any, ...]]:
    return {
        op.output.name.removeprefix(f"backbone.{block}."): tuple(
            op.attrs[name] for name in ("stride", "padding", "dilation")
        )
        for op in graph.ops
        if op.kind == "conv2d" and op.block == f"backbone.{block}"
    }


def test_strides_are_where_torchvision_has_them() -> None:
    basic, _, _ = build("resnet18", 64, 64)
    assert walks(basic, "stem") == {"conv.product": (2, 3, 1)}
    assert walks(basic, "layer1.0") == {"conv1.product": (1, 1, 1), "conv2.product": (1, 1, 1)}
    assert walks(basic, "layer2.0") == {
        "conv1.product": (2, 1, 1),
        "conv2.product": (1, 1, 1),
        "downsample.product": (2, 0, 1),
    }
    bottleneck, _, _ = build("resnet50", 64, 64)
    assert walks(bottleneck, "layer1.0")["downsample.product"] == (1, 0, 1)
    assert walks(bottleneck, "layer2.0") == {
        "conv1.product": (1, 0, 1),
        "conv2.product": (2, 1, 1),
        "conv3.product": (1, 0, 1),
        "downsample.product": (2, 0, 1),
    }


def test_a_dilated_last_stage_keeps_its_size() -> None:
    graph, _, _ = build("resnet50", 64, 64, dilated=True)
    first, second = walks(graph, "layer4.0"), walks(graph, "layer4.1")
    assert first["conv2.product"] == (1, 1, 1), "the first block still sees undilated features"
    assert first["downsample.product"] == (1, 0, 1)
    assert second["conv2.product"] == (1, 2, 2)
    assert walks(graph, "layer3.0")["conv2.product"] == (2, 1, 1)


def test_names_are_torchvision_s() -> None:
    _, _, names = build("resnet18", 32, 32)
    assert {
        "net.conv1.weight",
        "net.bn1.running_mean",
        "net.layer1.0.conv1.weight",
        "net.layer4.1.bn2.running_var",
        "net.layer2.0.downsample.0.weight",
        "net.layer2.0.downsample.1.bias",
    } <= set(names)


def test_what_cannot_be_built_is_named() -> None:
    weights = Weights(Hollow())
    with pytest.raises(CheckpointError, match="vision_backbone is 'resnet20', expected one of resnet18"):
        ResNet("resnet20", weights, str)
    with pytest.raises(
        CheckpointError, match="with vision_backbone 'resnet34', expected a backbone of bottleneck"
    ):
        ResNet("resnet34", weights, str, dilated=True)


def test_a_negative_variance_is_refused() -> None:
    class Negative(Hollow):
        def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
            return np.full(shape or (), -0.5 if name.endswith("bn1.running_var") else 1, np.float32)

    b = Builder()
    image = b.input("x", (32, 32, 3), DType.F32, Lifetime.QUERY)
    backbone = ResNet("resnet18", Weights(Negative()), lambda stage: f"layer{stage + 1}")
    with pytest.raises(CheckpointError, match=r"'bn1.running_var' has the value -0.5, expected 0 or more"):
        backbone.build(b, image, "backbone")
