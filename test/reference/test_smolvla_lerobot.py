"""SmolVLA against LeRobot's: odd shapes, every attention, both stored types, continued chunks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case, random_cases
from vla_simd_ros.fidelity.check import compare
from vla_simd_ros.fidelity.lerobot_smolvla import LeRobotSmolVla
from vla_simd_ros.fidelity.measure import bound_with, distance
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.inference import Prefix
from vla_simd_ros.policies.base import Guidance
from vla_simd_ros.policies.blocks import siglip
from vla_simd_ros.policies.smolvla import SmolVlaPolicy

CAMERAS = (Camera("front", 80, 112), Camera("wrist", 66, 50))
THREE = (*CAMERAS, Camera("side", 64, 64))
SMALL: dict[str, Any] = {
    "resize_imgs_with_padding": [64, 64],
    "num_vlm_layers": 4,
    "vlm.scale_factor": 2,
    "vlm.text_config.hidden_size": 80,
    "vlm.text_config.intermediate_size": 96,
    "vlm.text_config.num_attention_heads": 5,
    "vlm.text_config.num_key_value_heads": 1,
    "vlm.text_config.head_dim": 16,
    "vlm.text_config.vocab_size": 900,
    "vlm.vision_config.hidden_size": 48,
    "vlm.vision_config.intermediate_size": 80,
    "vlm.vision_config.num_hidden_layers": 2,
    "vlm.vision_config.num_attention_heads": 4,
    "vlm.vision_config.image_size": 64,
    "vlm.vision_config.patch_size": 8,
}
INSTRUCTION = "put the tape into the box"


def options(seed: int = 1, **changes: Any) -> Options:
    settings = {**SMALL, **changes.pop("settings", {})}
    return Options(**{"seed": seed, "cameras": CAMERAS, "settings": settings, **changes})


def passes(checkpoint: Checkpoint, instruction: str = INSTRUCTION, num_steps: int | None = None) -> bool:
    cases = random_cases(checkpoint, 2, 0, num_steps=num_steps)
    executor = SimdExecutor()
    bound = bound_with(executor.settings.convolution, iterates=True)
    report = compare(checkpoint, executor, "lerobot", instruction, cases, print, bound)
    print(report)
    return report.passed


@pytest.mark.parametrize(
    ("given", "num_steps"),
    [
        pytest.param({}, None, id="two cameras"),
        pytest.param({"cameras": CAMERAS[:1]}, 1, id="one step"),
        pytest.param(
            {"cameras": THREE, "state_dim": 14, "action_dim": 14, "sizes": {"chunk_size": 17}}, 7, id="three"
        ),
        pytest.param({"dtype": "bf16"}, None, id="bf16"),
        pytest.param({"settings": {"attention_mode": "self_attn"}}, None, id="self attention"),
        pytest.param({"settings": {"self_attn_every_n_layers": -1}}, None, id="cross attention"),
        pytest.param({"settings": {"self_attn_every_n_layers": 3}}, None, id="every third layer"),
        pytest.param(
            {"settings": {"num_expert_layers": 2, "self_attn_every_n_layers": 4}}, None, id="half the expert"
        ),
        pytest.param({"settings": {"num_vlm_layers": 3, "expert_width_multiplier": 0.5}}, None, id="narrow"),
        pytest.param({"settings": {"resize_imgs_with_padding": [48, 48]}}, None, id="fewer patches"),
        pytest.param(
            {"settings": {"add_image_special_tokens": True, "pad_language_to": "max_length"}},
            None,
            id="marks",
        ),
        pytest.param({"settings": {"prefix_length": 80, "max_period": 2.0}}, None, id="padded prefix"),
        pytest.param(
            {
                "settings": {
                    "normalization_mapping.VISUAL": "MEAN_STD",
                    "normalization_mapping.STATE": "MIN_MAX",
                    "normalization_mapping.ACTION": "QUANTILES",
                }
            },
            None,
            id="normalization",
        ),
    ],
)
def test_actions(bench: Any, given: dict[str, Any], num_steps: int | None) -> None:
    assert passes(bench.checkpoint("smolvla", options(**given)), num_steps=num_steps)


def test_a_folder_that_lerobot_wrote(bench: Any, tmp_path: Path) -> None:
    """Three cameras, 14 joints, and every field and tensor as LeRobot stores them, rtc_config among them."""
    import torch
    from lerobot.configs import FeatureType, PolicyFeature, RTCAttentionSchedule
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.policies.rtc.configuration_rtc import RTCConfig
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    bench.checkpoint("smolvla", options())  # for the language model's folder
    sizes = {"a": (60, 80), "b": (64, 64), "c": (48, 96)}
    cameras = {f"observation.images.{name}": (3, *size) for name, size in sizes.items()}
    torch.manual_seed(3)
    config = SmolVLAConfig(
        input_features={
            **{name: PolicyFeature(FeatureType.VISUAL, shape) for name, shape in cameras.items()},
            "observation.state": PolicyFeature(FeatureType.STATE, (14,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (14,))},
        device="cpu",
        chunk_size=23,
        n_action_steps=9,
        num_steps=6,
        max_action_dim=16,
        resize_imgs_with_padding=(64, 64),
        num_vlm_layers=4,
        vlm_model_name=str(bench.folder / "vlm"),
        rtc_config=RTCConfig(True, RTCAttentionSchedule.EXP, 7.5, 12),
    )
    stats = {
        name: {"mean": torch.randn(14) / 3, "std": torch.rand(14) + 0.1}
        for name in ("observation.state", "action")
    }
    SmolVLAPolicy(config).save_pretrained(tmp_path)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    definition = SmolVlaPolicy(checkpoint)
    assert (definition.spec.chunk_size, definition.spec.n_action_steps) == (23, 9)
    assert definition.solver.guidance == Guidance("EXP", 12, 7.5, enabled=True)
    assert definition.solver.default_steps == 6
    assert passes(checkpoint)


def test_cameras_that_are_empty(bench: Any) -> None:
    """LeRobot makes black images of them, which nothing attends to."""
    cameras = (*CAMERAS, Camera("empty_camera_0", 480, 640))
    assert passes(bench.checkpoint("smolvla", options(cameras=cameras, settings={"empty_cameras": 1})))


@pytest.mark.parametrize("text", ["open the drawer", "open the drawer\n", "a " * 60, "caf\u00e9 12 \u6f22!"])
def test_instructions(bench: Any, text: str) -> None:
    checkpoint = bench.checkpoint("smolvla", options())
    theirs = LeRobotSmolVla(checkpoint, text, np.float32)
    case = random_cases(checkpoint, 1, 0)[0]
    assert theirs.token_ids(case) == checkpoint.tokenizer().encode(text)


def test_float64_runs_agree_but_for_constants_in_float32(bench: Any) -> None:
    """The root of the width and the statistics, which are exact here, are all that is."""
    settings = {f"normalization_mapping.{kind}": "IDENTITY" for kind in ("STATE", "ACTION")}
    settings |= {"vlm.text_config.hidden_size": 64, "vlm.text_config.num_attention_heads": 4}
    checkpoint = bench.checkpoint("smolvla", options(settings=settings))
    (case,) = random_cases(checkpoint, 1, 0)
    policy = instruct(checkpoint, INSTRUCTION)
    ours = policy.run(ReferenceExecutor(np.float64).load(policy.compiled), case)["action"]
    theirs = LeRobotSmolVla(checkpoint, INSTRUCTION, np.float64).predict(case)
    assert distance(ours, theirs).relative < 1e-7


@pytest.mark.parametrize("schedule", ["LINEAR", "EXP", "ONES", "ZEROS"])
@pytest.mark.parametrize(
    ("rows", "frozen", "horizon"), [(50, 1, 50), (30, 10, 20), (8, 8, 8), (5, 3, 2), (1, 1, 1)]
)
def test_chunks_continue_as_lerobot_s_do(
    bench: Any, schedule: str, rows: int, frozen: int, horizon: int
) -> None:
    checkpoint = bench.checkpoint("smolvla", options())
    (case,) = random_cases(checkpoint, 1, 0)
    scale, offset = checkpoint.unnormalizers["action"].affine()
    actions = np.random.default_rng(1).normal(size=(rows, 6)) * scale + offset
    prefix = Prefix(actions.astype(np.float32), frozen, horizon, schedule, max_guidance_weight=5.0)
    guided = Case(case.observation, case.noise, case.num_steps, prefix)
    policy = instruct(checkpoint, INSTRUCTION)
    ours = policy.run(ReferenceExecutor(np.float64).load(policy.compiled), guided)["action"]
    reference = LeRobotSmolVla(checkpoint, INSTRUCTION, np.float64)
    theirs = reference.predict(guided)
    # LeRobot keeps the previous chunk, weights and guidance in float32.
    assert distance(ours, theirs).relative < 2e-6
    assert distance(ours, reference.predict(case)).relative > 1e-3


def test_a_checkpoint_says_how_its_chunks_continue(bench: Any) -> None:
    """LeRobot reads rtc_config itself; what a query says comes before it."""
    bench.checkpoint("smolvla", options(cameras=CAMERAS[:1]))
    path = bench.folder / "config.json"
    rtc = {"prefix_attention_schedule": "EXP", "max_guidance_weight": 2.0, "execution_horizon": 6}
    path.write_text(json.dumps({**json.loads(path.read_text()), "rtc_config": rtc, "num_steps": 3}))
    checkpoint = load_checkpoint(bench.folder)
    (case,) = random_cases(checkpoint, 1, 0)
    actions = np.random.default_rng(1).normal(size=(30, 6)).astype(np.float32)
    policy = instruct(checkpoint, INSTRUCTION)
    executable = ReferenceExecutor(np.float64).load(policy.compiled)
    reference = LeRobotSmolVla(checkpoint, INSTRUCTION, np.float64)
    seen = []
    for asked in ({}, {"schedule": "ONES"}, {"horizon": 20}, {"max_guidance_weight": 8.0}):
        guided = Case(case.observation, case.noise, case.num_steps, Prefix(actions, 3, **asked))
        ours, theirs = policy.run(executable, guided)["action"], reference.predict(guided)
        assert distance(ours, theirs).relative < 2e-6, asked
        assert all(distance(ours, other).relative > 1e-4 for other in seen), asked
        seen.append(ours)


def test_one_position_off_is_noticed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.checkpoint("smolvla", options())
    command = ["check", str(bench.folder), "--observations", "1"]
    assert main(command) == 0
    right = siglip.position_indices

    def off(count: int, grid: int, half: bool) -> np.ndarray:
        indices = right(count, grid, half).copy()
        indices[-1] -= 1
        return indices

    monkeypatch.setattr(siglip, "position_indices", off)
    assert main(command) == 1


@pytest.mark.parametrize("side", [32, 24, 27, 14, 12])
@pytest.mark.parametrize("count", [32, 24, 17, 14, 7, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_position_indices(side: int, count: int, dtype: str) -> None:
    """Against the embedding itself, whose table says which row it took."""
    import torch
    from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig
    from transformers.models.smolvlm.modeling_smolvlm import SmolVLMVisionEmbeddings

    config = SmolVLMVisionConfig(hidden_size=2, image_size=2 * side, patch_size=2, num_attention_heads=1)
    embeddings = SmolVLMVisionEmbeddings(config)
    with torch.no_grad():
        embeddings.patch_embedding.weight.zero_()
        embeddings.patch_embedding.bias.zero_()
        rows = torch.arange(side).repeat_interleave(side)
        embeddings.position_embedding.weight.copy_(
            torch.stack((rows, torch.arange(side).repeat(side)), dim=1)
        )
        kind = getattr(torch, dtype)
        pixels = torch.zeros(1, 3, 2 * count, 2 * count, dtype=kind)
        found = embeddings.to(kind)(pixels, torch.ones(1, count, count, dtype=torch.bool))[0]
    taken = found.reshape(count, count, 2).to(torch.int64).numpy()
    expected = siglip.position_indices(count, side, dtype == "bfloat16")
    np.testing.assert_array_equal(taken[:, 0, 0], expected)
    np.testing.assert_array_equal(taken[0, :, 1], expected)
