"""The work of full-size policies, counted on graphs without any weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.checkpoints.normalization import NormMode, make_normalizer, make_unnormalizer
from vla_simd_ros.graph.compile import optimize
from vla_simd_ros.graph.cost import total_cost
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Graph, Lifetime
from vla_simd_ros.policies.act import ActPolicy
from vla_simd_ros.policies.diffusion import DiffusionPolicy
from vla_simd_ros.policies.impact import ImpactPolicy
from vla_simd_ros.policies.minddrive import MindDrivePolicy
from vla_simd_ros.policies.octo import OctoPolicy
from vla_simd_ros.policies.orion import OrionPolicy
from vla_simd_ros.policies.smolvla import SmolVlaPolicy
from vla_simd_ros.policies.turbovla import TurboVlaPolicy

BLOCK = "model.text.model.encoder.block.{}.layer."
VLM = "model.vlm_with_expert.vlm.model."
VISION = VLM + "vision_model."
# What is looked up to find out the sizes of networks, or the names of their weights.
LOOKED_UP = {
    "model.text.model.shared.weight": (32128, 512),
    BLOCK.format(0) + "0.SelfAttention.relative_attention_bias.weight": (32, 8),
    **{BLOCK.format(i) + "0.SelfAttention.q.weight": (512, 512) for i in range(6)},
    BLOCK.format(0) + "1.DenseReluDense.wi.weight": (2048, 512),
    "model.vision_encoder.model.layer.0.norm1.weight": (768,),
    VISION + "embeddings.patch_embedding.weight": (768, 3, 16, 16),
    VISION + "embeddings.position_embedding.weight": (1024, 768),
    **{f"{VISION}encoder.layers.{i}.mlp.fc1.weight": (3072, 768) for i in range(12)},
    VLM + "connector.modality_projection.proj.weight": (960, 12288),
    VLM + "text_model.embed_tokens.weight": (49280, 960),
    **{f"{VLM}text_model.layers.{i}.self_attn.q_proj.weight": (960, 960) for i in range(16)},
    VLM + "text_model.layers.0.self_attn.k_proj.weight": (320, 960),
    VLM + "text_model.layers.0.mlp.gate_proj.weight": (2560, 960),
    "model.vlm_with_expert.lm_expert.layers.0.mlp.gate_proj.weight": (2048, 720),
}


class Hollow(Mapping[str, Array]):
    """Weights of the shapes asked for, all of them the same zero."""

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return expected or LOOKED_UP[name]

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        return np.broadcast_to(np.float32(0), self.shape(name, shape))

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self.tensor(name)[start:stop]

    def __getitem__(self, name: str) -> Array:
        return self.tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(LOOKED_UP)

    def __len__(self) -> int:
        return len(LOOKED_UP)


@dataclass
class HollowProcessors:
    normalizers: dict[str, Any]
    unnormalizers: dict[str, Any]
    rename_map: dict[str, str]


def hollow_checkpoint(policy: str, height: int, width: int, state: int, action: int) -> Checkpoint:
    cameras = [Feature(f"observation.images.{n}", FeatureKind.VISUAL, (3, height, width)) for n in "ab"]
    inputs = [*cameras, Feature("observation.state", FeatureKind.STATE, (state,))]
    output = Feature("action", FeatureKind.ACTION, (action,))
    mode, stats = NormMode.MEAN_STD, {"mean": 0.5, "std": 0.5}

    def filled(feature: Feature) -> dict[str, Array]:
        return {name: np.full(feature.channels, value, np.float32) for name, value in stats.items()}

    processors = HollowProcessors(
        {f.name: make_normalizer(f, mode, filled(f), 1e-8, "") for f in inputs},
        {output.name: make_unnormalizer(output, mode, filled(output), 1e-8, "")},
        {},
    )
    return Checkpoint(
        folder=Path("hollow"),
        type=policy,
        config={},
        features_in={f.name: f for f in inputs},
        features_out={output.name: output},
        weights=cast(Any, Hollow()),
        processors=cast(Any, processors),
    )


def gigaflops(graph: Graph, lifetime: Lifetime) -> float:
    ops = [op for op in optimize(graph, FoldCache()).ops if op.output.lifetime is lifetime]
    return total_cost(ops).flops / 1e9


def test_impact_on_the_so_101() -> None:
    """vla.simd states about 88 GFLOP a query and about 1.2 GFLOP an episode."""
    graph = ImpactPolicy(hollow_checkpoint("impact", 480, 640, 6, 6)).build(32)
    tokens = next(op.output for op in graph.ops if op.output.name == "tokens.all")
    assert tokens.shape == (634, 512)
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(87.6, abs=0.1)
    assert gigaflops(graph, Lifetime.EPISODE) == pytest.approx(1.24, abs=0.02)


def test_a_shorter_instruction_costs_less() -> None:
    """vla.simd states about 2.3 GFLOP for 32 text tokens."""
    policy = ImpactPolicy(hollow_checkpoint("impact", 480, 640, 6, 6))
    costs = [gigaflops(policy.build(tokens), Lifetime.QUERY) for tokens in (1, 32)]
    assert costs[1] - costs[0] == pytest.approx(2.3, abs=0.15)


def test_act_at_the_same_size() -> None:
    graph = ActPolicy(hollow_checkpoint("act", 480, 640, 6, 6)).build()
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(70.2, abs=0.1)
    assert gigaflops(graph, Lifetime.EPISODE) == 0


def test_a_diffusion_step_is_its_convolutions() -> None:
    """A multiply-add for each weight and row: 64 rows of 512, 32 of 1024, 16 of 2048."""
    graph = DiffusionPolicy(hollow_checkpoint("diffusion", 96, 96, 2, 2)).build()

    def block(rows: int, inputs: int, width: int) -> int:
        residual = inputs * width if inputs != width else 0
        return rows * (5 * width * (inputs + width) + residual)

    down = block(64, 2, 512) + block(64, 512, 512) + 32 * 3 * 512**2
    down += block(32, 512, 1024) + block(32, 1024, 1024) + 16 * 3 * 1024**2
    coarse = block(16, 1024, 2048) + 3 * block(16, 2048, 2048)
    up = block(16, 4096, 1024) + block(16, 1024, 1024) + 16 * 4 * 1024**2
    up += block(32, 2048, 512) + block(32, 512, 512) + 32 * 4 * 512**2
    products = down + coarse + up + 64 * (5 * 512**2 + 512 * 2)
    assert gigaflops(graph, Lifetime.STEP) == pytest.approx(2 * products / 1e9, rel=2e-3)
    assert gigaflops(graph, Lifetime.STEP) == pytest.approx(9.3, abs=0.05)


def test_turbovla_is_its_vision_encoder() -> None:
    """A multiply-add for each weight and token, and attention within 201 tokens of each view."""
    graph = TurboVlaPolicy(hollow_checkpoint("turbovla", 480, 640, 6, 6)).build(12)
    views, tokens, width = 2, 1 + 4 + 14 * 14, 768
    patches = 14 * 14 * width * 3 * 16 * 16
    layers = 12 * (tokens * 12 * width**2 + 2 * tokens**2 * width)
    vision = 2 * views * (patches + layers) / 1e9
    rows = 1 + views * 14 * 14 + 12
    trunk = 2 * 6 * rows * (4 * 256**2 + 2 * 256 * 1024) / 1e9
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(vision + trunk, rel=0.02)
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(76.5, abs=0.1)
    assert gigaflops(graph, Lifetime.EPISODE) == pytest.approx(2 * 12 * 12 * 12 * width**2 / 1e9, rel=0.02)


def test_smolvla_reads_the_prefix_once_and_steps_are_its_expert() -> None:
    """Layer by layer: 2 m n k for each product."""
    graph = SmolVlaPolicy(hollow_checkpoint("smolvla", 480, 640, 6, 6)).build(48)
    rows = 2 * 64 + 48 + 1
    vision = 2 * 1024 * (3 * 256 * 768 + 12 * (4 * 768 * 768 + 2 * 768 * 3072 + 2 * 1024 * 768))
    connector = 2 * 64 * 12288 * 960
    layer = 2 * rows * (960 * (960 + 640 + 960 + 3 * 2560) + 2 * rows * 960)
    last = 2 * rows * 960 * 640
    memory = 8 * 2 * rows * 2 * 320 * 320
    expected = 2 * (vision + connector) + 15 * layer + last + memory
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(expected / 1e9, rel=0.01)
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(487.4, abs=0.1)
    shared = 720 * 960 * 2 + 3 * 720 * 2048
    joint, cross = shared + 720 * 640 + 2 * (rows + 50) * 960, shared + 2 * rows * 960
    step = 2 * 50 * (8 * (joint + cross) + 2 * 32 * 720 + 2 * 720 * 720)
    assert gigaflops(graph, Lifetime.STEP) == pytest.approx(step / 1e9, rel=0.01)
    assert gigaflops(graph, Lifetime.STEP) == pytest.approx(10.41, abs=0.01)


def test_octo_is_its_transformer() -> None:
    """Eleven layers of all rows, which attend to those up to their own; of the twelfth, keys and values."""
    graph = OctoPolicy(hollow_checkpoint("octo", 256, 256, 6, 7)).build(8)
    task, step, width = 16, 2 * 256 + 16 + 1, 384
    products = 11 * 2 * step * (4 * width**2 + 2 * width * 4 * width) + 2 * step * 2 * width**2
    attention = 11 * 2 * width * step * ((task + step) + (task + 2 * step))
    convolutions = sum(
        (256 // 2**n) ** 2 * 9 * inputs * outputs
        for n, (inputs, outputs) in enumerate([(3, 32), (32, 96), (96, 192), (192, 384)], start=1)
    )
    stem = 4 * (convolutions + 256 * 2 * 384 * 512)
    expected = 2 * (products + attention + stem) / 1e9
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(expected, rel=0.01)
    head = 2 * (28 * 256 + 3 * 8 * 256**2 + 256 * 28) / 1e9
    assert gigaflops(graph, Lifetime.STEP) == pytest.approx(head, rel=0.02)


def test_libero_views_give_128_visual_tokens() -> None:
    graph = ImpactPolicy(hollow_checkpoint("impact", 256, 256, 8, 7)).build(32)
    tokens = next(op.output for op in graph.ops if op.output.name == "tokens.all")
    assert tokens.shape == (2 + 128 + 32, 512)
    assert graph.outputs["action"].shape == (50, 7)


def driving(policy: str, text: dict[str, Any], queries: int) -> Checkpoint:
    """A planner of full size with six views."""
    made = hollow_checkpoint(policy, 320, 640, 8, 4)
    cameras = [Feature(f"observation.images.{n}", FeatureKind.VISUAL, (3, 320, 640)) for n in "abcdef"]
    features = {f.name: f for f in (*cameras, made.features_in["observation.state"])}
    normalizer = made.normalizers["observation.images.a"]
    processors = HollowProcessors(
        {**made.normalizers, **{camera.name: normalizer for camera in cameras}}, dict(made.unnormalizers), {}
    )
    config = {
        "vision_config": {"hidden_size": 1024},
        "query_config": {"num_queries": queries},
        "text_config": text,
    }
    return replace(made, config=config, features_in=features, processors=cast(Any, processors))


def driving_work(rows: int, text: int, width: int, keys: int, inner: int, layers: int) -> tuple[float, float]:
    """Multiply-adds of the tower over 6 x 20 x 40 patches, and of one pass of a language model."""
    patches, vision = 6 * 20 * 40, 1024
    windows = 6 * (256 * 256 * 2 + 256 * 128 + 64 * 64 * 2 + 64 * 32)
    tower = patches * 3 * 16**2 * vision + 24 * patches * (4 * vision**2 + 3 * vision * 2730)
    tower += 2 * vision * (16 * windows + 8 * 6 * 800**2)
    layer = rows * (2 * width**2 + 2 * width * keys + 3 * width * inner) + 2 * width * rows * (rows + text)
    return tower, (layers - 1) * layer + rows * 2 * width * keys


def test_minddrive_is_its_vision_tower_and_two_passes_of_qwen2() -> None:
    text = {"num_hidden_layers": 24, "num_key_value_heads": 2}
    graph = MindDrivePolicy(driving("minddrive", text, 256)).build(76)
    tower, decision = driving_work(514, 76, 896, 128, 4864, 24)
    _, action = driving_work(516, 76, 896, 128, 4864, 24)
    heads = 2 * 6 * (256 * (6 * 256**2 + 2 * 256 * 2048) + 2 * 4800 * 256**2 + 2 * 256 * 256 * (256 + 4800))
    expected = 2 * (tower + decision + action + heads) / 1e9
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(expected, rel=0.01)
    assert gigaflops(graph, Lifetime.EPISODE) > 50


def test_orion_is_its_vision_tower_and_vicuna() -> None:
    text = {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    }
    graph = OrionPolicy(driving("orion", text, 512)).build(76)
    tower, language = driving_work(514, 76, 4096, 4096, 11008, 32)
    heads = 6 * (512 * (6 * 256**2 + 2 * 256 * 2048) + 2 * 4800 * 256**2 + 2 * 256 * 512 * (512 + 4800))
    expected = 2 * (tower + language + heads) / 1e9
    assert gigaflops(graph, Lifetime.QUERY) == pytest.approx(expected, rel=0.01)
