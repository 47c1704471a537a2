"""OpenVLA against the code that its authors published: actions, tokens and scores of small networks, and the
shapes of the full-size one."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.sharded import INDEX
from vla_simd_ros.checkpoints.synthesis import Camera, Options, default_options
from vla_simd_ros.checkpoints.synthesis.llama_vocabulary import llama_tokenizer
from vla_simd_ros.checkpoints.synthesis.openvla import openvla_recipe
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity import original_openvla
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.measure import BOUND, distance
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.inference import Policy
from vla_simd_ros.policies.registry import define_policy

TEXT = "Pick up the red block and put it into the box"
SIZES = {"dim_model": 48, "heads": 4, "feedforward": 80, "encoder_layers": 3, "decoder_layers": 2}
SMALL: dict[str, Any] = {
    "image_sizes": [28, 28],
    "timm_model_args.featurizer.embed_dim": 24,
    "timm_model_args.featurizer.num_heads": 3,
    "timm_model_args.featurizer.patch_size": 7,
    "timm_model_args.fused_featurizer.embed_dim": 32,
    "timm_model_args.fused_featurizer.depth": 4,
    "timm_model_args.fused_featurizer.num_heads": 4,
    "timm_model_args.fused_featurizer.mlp_ratio": 2.5,
    "timm_model_args.fused_featurizer.patch_size": 7,
    "text_config.vocab_size": 704,
    "n_action_bins": 48,
    "shard_bytes": 150_000,
}
GROUPED = {**SMALL, "text_config.num_key_value_heads": 2, "text_config.rms_norm_eps": 1e-5}
ALONE = {**SMALL, "use_fused_vision_backbone": False, "vision_backbone_id": "siglip-vit-so400m"}


def options(seed: int, height: int, width: int, settings: dict[str, Any], dtype: str = "fp32") -> Options:
    camera = Camera("image", height, width)
    return Options(
        seed=seed, cameras=(camera,), state_dim=0, action_dim=7, dtype=dtype, sizes=SIZES, settings=settings
    )


@pytest.mark.parametrize(
    "options",
    [
        options(1, 48, 64, {**SMALL, "text_config.num_key_value_heads": 4}),
        options(2, 28, 28, {**GROUPED, "image_resize_strategy": "letterbox"}, "bf16"),
        options(3, 40, 75, {**GROUPED, "image_resize_strategy": "letterbox"}),
        options(
            4, 40, 75, {**GROUPED, "image_resize_strategy": "resize-crop", "text_config.rope_theta": 500.0}
        ),
        options(5, 30, 41, {**ALONE, "text_config.num_key_value_heads": 1}, "fp16"),
    ],
    ids=["stretched", "as_it_is", "border", "cut", "one_tower"],
)
def test_scores_tokens_and_actions(bench: Any, options: Options) -> None:
    checkpoint = bench.checkpoint("openvla", options)
    cases = random_cases(checkpoint, 2, seed=0)
    policy = Policy(checkpoint, SimdExecutor(convolution="exact", linear="direct"))
    policy.set_instruction(TEXT)
    single, double = (
        original_openvla.reference(checkpoint, TEXT, dtype) for dtype in (np.float32, np.float64)
    )
    for case in cases:
        tokens = double.tokens(case)
        query = policy.query(case.observation)
        assert query.decoded is not None
        assert list(query.decoded.tokens) == tokens == single.tokens(case)
        assert distance(query.actions, double.predict(case)).relative <= 1e-7
        expected = double.scores(case, tokens)
        for reference in (expected, single.scores(case, tokens)):
            assert distance(engine_scores(policy, checkpoint, tokens), reference).relative <= BOUND


def engine_scores(policy: Policy, checkpoint: Checkpoint, tokens: list[int]) -> np.ndarray:
    """The scores behind the prompt and the tokens, the query program having run."""
    spelled = define_policy(checkpoint).action_tokens
    assert spelled is not None
    start = spelled.prefix_rows(len(checkpoint.tokenizer().encode(TEXT)))
    rows = []
    for place, token in enumerate([spelled.first, *tokens], start):
        step = {"step_ids": np.array([token], np.int32), "step_positions": np.array([place], np.int32)}
        rows.append(policy.executable.run(Lifetime.STEP, step)["scores"][0])
    return np.stack(rows)


def test_the_full_size_network_has_the_published_shapes(tmp_path: Path) -> None:
    """Nothing of it is read: a file with the published network's header, and no bytes behind it."""
    published = published_shapes()
    write_hollow_folder(tmp_path / "full", published)
    checkpoint = load_checkpoint(tmp_path / "full")
    policy = define_policy(checkpoint)
    graph = policy.build(20)
    assert (policy.spec.max_instruction_tokens, policy.spec.action_dim) == (96, 7)
    unread = set(published) - {tensor.name for tensor in graph.constants}
    # The last layer of a tower is not asked for, nor what follows it.
    towers = ("vision_backbone.featurizer.", "vision_backbone.fused_featurizer.")
    assert all(name.startswith(towers) for name in unread)
    last = [("blocks.23.", "norm."), ("blocks.26.", "norm.", "attn_pool.")]
    for tower, parts in zip(towers, last, strict=True):
        left_out = {n.removeprefix(tower) for n in unread if n.startswith(tower)}
        assert all(name.startswith(parts) for name in left_out)
    assert graph.outputs["scores"].shape == (1, 32064)


def published_shapes() -> dict[str, tuple[int, ...]]:
    """The parameters of the network as its code makes it with the sizes that it has by default."""
    config = original_openvla.published("configuration_prismatic")
    model = original_openvla.published("modeling_prismatic")
    settings = config.OpenVLAConfig(
        vision_backbone_id="dinosiglip-vit-so-224px",
        llm_backbone_id="llama2-7b-pure",
        text_config={"vocab_size": 32064},
        norm_stats={"arm": {"action": {"q01": [0.0] * 7, "q99": [1.0] * 7}}},
        attn_implementation="eager",
    )
    # timm looks at numbers of its own while it makes a network.
    known = mock.patch.object(torch, "linspace", partial(torch.linspace, device="cpu"))
    with torch.device("meta"), known, original_openvla.untied(model):
        network = model.OpenVLAForActionPrediction(settings)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def write_hollow_folder(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A published folder in bfloat16 whose weights are a hole in a file."""
    folder.mkdir()
    name = "model-00001-of-00001.safetensors"
    header: dict[str, Any] = {}
    end = 0
    for tensor, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[tensor] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / name).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    config = {
        "model_type": "openvla",
        "image_sizes": [224, 224],
        "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
        "use_fused_vision_backbone": True,
        "text_config": {"model_type": "llama", "pad_token_id": 32000, "vocab_size": 32064},
        "norm_stats": {"arm": {"action": {"q01": [0.0] * 7, "q99": [1.0] * 7}}},
    }
    images = {
        "image_resize_strategy": "resize-naive",
        "input_sizes": [[3, 224, 224]] * 2,
        "interpolations": ["bicubic"] * 2,
        "means": [[0.5] * 3] * 2,
        "stds": [[0.5] * 3] * 2,
    }
    for file_name, content in (
        ("config.json", config),
        ("preprocessor_config.json", images),
        ("tokenizer.json", llama_tokenizer(32000)),
        (INDEX, {"weight_map": dict.fromkeys(shapes, name)}),
    ):
        (folder / file_name).write_text(json.dumps(content))


@pytest.mark.usefixtures("hollow_weights")
def test_random_checkpoints_of_full_size_have_the_published_shapes() -> None:
    made = openvla_recipe(default_options("openvla", full_size=True)).tensors
    assert {name: values.shape for name, values in made.items()} == published_shapes()
