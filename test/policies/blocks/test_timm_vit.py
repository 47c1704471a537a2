"""What is read off stored vision towers; what they compute is held against the published code's actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_tensors import RandomTensors

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.policies.blocks.timm_vit import TimmVit, TimmVitConfig, read_timm_vit
from vla_simd_ros.policies.weights import Weights

DINO = TimmVitConfig(12, 3, 20, 3, 4, 2, class_token=True, registers=2, scaled=True)
SIGLIP = TimmVitConfig(8, 2, 16, 2, 4, 2, class_token=False, registers=0, scaled=False)


class Stored:
    """The shapes of a tower's tensors."""

    def __init__(self, config: TimmVitConfig, **changed: tuple[int, ...]) -> None:
        width = config.width
        self.shapes: dict[str, tuple[int, ...]] = {
            "v.patch_embed.proj.weight": (width, 3, config.patch, config.patch),
            "v.pos_embed": (1, config.patches, width),
            "v.blocks.0.mlp.fc1.weight": (config.feedforward, width),
            **{f"v.blocks.{index}.norm1.weight": (width,) for index in range(config.layers)},
        }
        if config.class_token:
            self.shapes["v.cls_token"] = (1, 1, width)
            self.shapes["v.reg_token"] = (1, config.registers, width)
            self.shapes["v.blocks.0.ls1.scale_factor"] = (width,)
        self.shapes |= {f"v.{name}": shape for name, shape in changed.items()}

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return self.shapes[name]


def read(stored: Any, heads: int) -> TimmVitConfig:
    return read_timm_vit(stored, "v.", frozenset(stored.shapes), heads)


@pytest.mark.parametrize("config", [DINO, SIGLIP], ids=["dinov2", "siglip"])
def test_sizes_are_those_of_the_stored_tensors(config: TimmVitConfig) -> None:
    assert read(Stored(config), config.heads) == config


@pytest.mark.parametrize(
    ("changed", "heads", "message"),
    [
        ({"pos_embed": (1, 5, 12)}, 3, r"'v.pos_embed' has shape \[1, 5, 12\], expected \[1, n \* n, 12\]"),
        ({"pos_embed": (4, 12)}, 3, r"'v.pos_embed' has shape \[4, 12\]"),
        ({"patch_embed.proj.weight": (12, 48)}, 3, r"has shape \[12, 48\], expected 4 dimensions"),
        ({"patch_embed.proj.weight": (12, 1, 4, 4)}, 3, "a position for each patch"),
        ({"blocks.0.mlp.fc1.weight": (20,)}, 3, r"has shape \[20\], expected 2 dimensions"),
        ({}, 5, "'v.': width is 12, expected a multiple of 5 heads"),
    ],
    ids=str,
)
def test_towers_of_another_kind_are_refused(
    changed: dict[str, tuple[int, ...]], heads: int, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(Stored(DINO, **changed), heads)


def test_a_tower_of_one_layer_has_no_layer_before_its_last() -> None:
    one = TimmVitConfig(8, 2, 16, 1, 4, 2, class_token=False, registers=0, scaled=False)
    with pytest.raises(CheckpointError, match=r"'v.blocks.' has 1 layers, expected 2 or more"):
        read(Stored(one), 2)


@pytest.mark.parametrize("config", [DINO, SIGLIP], ids=["dinov2", "siglip"])
def test_features_are_those_of_the_patches_alone_and_of_every_patch(config: TimmVitConfig) -> None:
    b = Builder()
    image = b.input("image", (8, 8, 3), DType.F32, Lifetime.QUERY)
    tower = TimmVit(config, Weights(RandomTensors(1, 0.3), "v."))
    features = tower.patch_features(b, image, lambda part: f"vision.{part}")
    b.output("features", features)
    assert features.shape == (4, config.width)
    graph = b.graph()
    assert not any(f".{config.layers - 1}." in op.output.name for op in graph.ops), (
        "the last layer is not there"
    )
    pixels = np.random.default_rng(0).normal(size=(8, 8, 3)).astype(np.float32)
    before = run_graph(graph, {"image": pixels})[features]
    pixels[:4, 4:] += 1
    moved = np.abs(run_graph(graph, {"image": pixels})[features] - before).max(axis=1)
    assert moved.argmax() == 1, "the upper right one"
    assert moved.min() > 1e-6, "but all attend to it"
