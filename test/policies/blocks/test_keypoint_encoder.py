from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime
from vla_simd_ros.policies.blocks.keypoint_encoder import EncoderConfig, KeypointEncoder

Open = Callable[..., Checkpoint]
HEIGHT, WIDTH, KEYPOINTS = 40, 70, 5


def encoded(opened: Checkpoint, config: EncoderConfig, image: Array) -> tuple[Graph, dict[str, Array]]:
    b = Builder()
    x = b.input("x", image.shape, DType.F32, Lifetime.QUERY)
    encoder = KeypointEncoder(config, opened.weights, "diffusion.rgb_encoder.0.")
    b.output("y", encoder.build(b, x, "top"))
    graph = b.graph()
    values = run_graph(graph, {"x": image})
    return graph, {tensor.name: value for tensor, value in values.items()}


@pytest.mark.parametrize("group_norm", [False, True])
def test_key_points_are_the_means_of_where_maps_are_active(checkpoint: Open, group_norm: bool) -> None:
    opened = checkpoint("diffusion", settings={"use_group_norm": group_norm, "crop_shape": [HEIGHT, 56]})
    config = EncoderConfig("resnet18", group_norm, KEYPOINTS, None, (HEIGHT, 56))
    image = np.random.default_rng(1).normal(size=(HEIGHT, WIDTH, 3)).astype(np.float32)
    graph, values = encoded(opened, config, image)
    features = next(v for n, v in values.items() if n == "backbone.top.layer4.1.relu")
    height, width, _ = features.shape
    weight = opened.tensors["diffusion.rgb_encoder.0.pool.nets.weight"][:, :, 0, 0].astype(np.float64)
    points = []
    for row, bias in zip(weight, opened.tensors["diffusion.rgb_encoder.0.pool.nets.bias"], strict=True):
        active = np.exp(features @ row + bias)
        active /= active.sum()
        points.append((active * np.linspace(-1, 1, width)).sum())
        points.append((active * np.linspace(-1, 1, height)[:, None]).sum())
    out = opened.tensors["diffusion.rgb_encoder.0.out.weight"].astype(np.float64)
    expected = np.maximum(out @ points + opened.tensors["diffusion.rgb_encoder.0.out.bias"], 0)
    np.testing.assert_allclose(values["keypoints.top.out.relu"][0], expected, rtol=0, atol=1e-6)
    assert {op.kind for op in graph.ops} & {"batch_norm", "group_norm"} == {
        "group_norm" if group_norm else "batch_norm"
    }


def test_a_frame_is_resized_and_then_cropped(checkpoint: Open) -> None:
    config = EncoderConfig("resnet18", False, KEYPOINTS, (50, 66), (40, 56))
    image = np.random.default_rng(1).normal(size=(HEIGHT, WIDTH, 3)).astype(np.float32)
    _, values = encoded(checkpoint("diffusion"), config, image)
    assert values["preprocess.image.top.resized"].shape == (50, 66, 3)
    cropped = values["preprocess.image.top.cropped.x"]
    np.testing.assert_array_equal(cropped, values["preprocess.image.top.resized"][5:45, 5:61])
