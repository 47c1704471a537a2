"""Diffusion Policy against LeRobot's own, and its samplers against those of diffusers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.check import compare
from vla_simd_ros.fidelity.measure import bound_with
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.policies.blocks.image_geometry import centre_crop, smoothly_resized
from vla_simd_ros.policies.blocks.step_embedding import step_embeddings
from vla_simd_ros.policies.solvers.beta_schedules import betas, products_of_alphas
from vla_simd_ros.policies.solvers.diffusion import DiffusionProcess, DiffusionSolver

SMALL: dict[str, Any] = {
    "down_dims": [16, 32],
    "n_groups": 4,
    "kernel_size": 3,
    "horizon": 16,
    "diffusion_step_embed_dim": 16,
    "spatial_softmax_num_keypoints": 7,
}
TOP = (Camera("top", 64, 96),)
VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "three cameras, 14 joints": (
        {
            "cameras": tuple(Camera(name, 61, 87) for name in ("high", "left", "right")),
            "state_dim": 14,
            "action_dim": 14,
            "sizes": {"chunk_size": 11},
        },
        13,
    ),
    "one encoder, group norm, cropped": (
        {
            "cameras": (Camera("front", 64, 96), Camera("wrist", 64, 96)),
            "sizes": {"chunk_size": 5},
            "settings": {
                "use_group_norm": True,
                "use_separate_rgb_encoder_per_camera": False,
                "crop_shape": [57, 84],
                "n_obs_steps": 3,
                "noise_scheduler_type": "DDIM",
            },
        },
        10,
    ),
    "resized and cropped": (
        {
            "cameras": TOP,
            "env_state_dim": 3,
            "settings": {
                "n_obs_steps": 1,
                "resize_shape": [48, 100],
                "crop_ratio": 0.9,
                "noise_scheduler_type": "DDIM",
                "clip_sample_range": 2.0,
            },
            "sizes": {"chunk_size": 16},
        },
        25,
    ),
    "clean samples, shifts only, other widths": (
        {
            "cameras": TOP,
            "settings": {
                "prediction_type": "sample",
                "use_film_scale_modulation": False,
                "down_dims": [16, 24, 8],
                "kernel_size": 7,
                "n_groups": 2,
                "diffusion_step_embed_dim": 130,
                "beta_schedule": "scaled_linear",
            },
            "sizes": {"chunk_size": 8},
        },
        100,
    ),
    "another backbone, not clipped": (
        {
            "cameras": TOP,
            "sizes": {"chunk_size": 8, "backbone": "resnet50"},
            "settings": {"clip_sample": False, "beta_schedule": "linear", "noise_scheduler_type": "DDIM"},
        },
        4,
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_actions_of_every_configuration(bench: Any, variant: str) -> None:
    options, steps = VARIANTS[variant]
    settings = {**SMALL, **options.get("settings", {})}
    report = bench.compare(
        "diffusion", Options(**{"seed": 9, **options, "settings": settings}), "lerobot", num_steps=steps
    )
    assert report.passed


def test_full_size(bench: Any) -> None:
    """The defaults of LeRobot 0.4; those of 0.6 differ in sizes that the small ones have too."""
    options = Options(
        seed=1,
        cameras=(Camera("top", 96, 96),),
        state_dim=2,
        action_dim=2,
        sizes={"chunk_size": 8},
        settings={
            "horizon": 16,
            "crop_shape": [84, 84],
            "use_group_norm": True,
            "use_separate_rgb_encoder_per_camera": False,
            "noise_scheduler_type": "DDIM",
        },
    )
    assert bench.compare("diffusion", options, "lerobot", num_steps=10).passed


def test_a_folder_that_lerobot_wrote(tmp_path: Path) -> None:
    """Every field of its configuration and every tensor that it stores, batch counters included."""
    from lerobot.configs import FeatureType, PolicyFeature
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
    from lerobot.policies.factory import make_pre_post_processors

    torch.manual_seed(3)
    cameras = [f"observation.images.{name}" for name in "abc"]
    config = DiffusionConfig(
        input_features={
            **{name: PolicyFeature(FeatureType.VISUAL, (3, 60, 80)) for name in cameras},
            "observation.state": PolicyFeature(FeatureType.STATE, (14,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (14,))},
        pretrained_backbone_weights=None,
        device="cpu",
        down_dims=(32, 48),
        horizon=12,
        n_action_steps=9,
        num_inference_steps=6,
        diffusion_step_embed_dim=32,
    )
    stats = {
        name: {"min": -torch.ones(14), "max": torch.arange(14) + 1.0}
        for name in ("observation.state", "action")
    }
    stats |= {
        name: {"mean": torch.full((3, 1, 1), 0.4), "std": torch.full((3, 1, 1), 0.2)} for name in cameras
    }
    DiffusionPolicy(config).save_pretrained(tmp_path)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    cases = random_cases(checkpoint, 2, seed=1)
    assert cases[0].num_steps == 6
    report = compare(checkpoint, SimdExecutor(), "lerobot", "", cases, print, bound_with("exact", True))
    assert report.shape == (9, 14)
    assert report.passed


@pytest.mark.parametrize("kind", ["DDPM", "DDIM"])
@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "laplace"])
@pytest.mark.parametrize("prediction", ["epsilon", "sample"])
@pytest.mark.parametrize("clip", [None, 1.0, 0.3])
def test_samplers_are_those_of_diffusers(
    kind: str, schedule: str, prediction: str, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers import DDIMScheduler, DDPMScheduler
    from diffusers.schedulers import scheduling_ddpm

    if kind == "DDIM" and schedule in ("sigmoid", "laplace"):
        pytest.skip("not a schedule of diffusers' DDIM")
    train, shape = 50, (6, 4)
    solver = DiffusionSolver(kind, DiffusionProcess(train, schedule, 1e-4, 0.02, prediction, clip), 10, shape)
    theirs = {"DDPM": DDPMScheduler, "DDIM": DDIMScheduler}[kind](
        num_train_timesteps=train,
        beta_start=1e-4,
        beta_end=0.02,
        beta_schedule=schedule,
        prediction_type=prediction,
        clip_sample=clip is not None,
        clip_sample_range=clip or 1.0,
    )
    rng = np.random.default_rng(5)
    for count in (1, 7, 10, 50):
        theirs.set_timesteps(count)
        noise = rng.standard_normal((1 + count, *shape), np.float32)
        steps = solver.steps(count)
        assert [int(step["timestep"][0]) for step in steps] == theirs.timesteps.tolist()
        for index, (step, time) in enumerate(zip(steps, theirs.timesteps, strict=True)):
            x, prediction_ = rng.standard_normal((2, *shape), np.float32)
            drawn = torch.from_numpy(noise[1 + index]).double()
            monkeypatch.setattr(scheduling_ddpm, "randn_tensor", lambda *_, drawn=drawn, **__: drawn)
            expected = theirs.step(
                torch.from_numpy(prediction_).double(), time, torch.from_numpy(x).double()
            ).prev_sample.numpy()
            b = Builder()
            sample = solver.sample(b)
            given = b.input("prediction", shape, DType.F32, Lifetime.STEP)
            b.output("sample", solver.advance(b, sample, given))
            graph = b.graph()
            inputs = {"sample": x, "prediction": prediction_, "coefficients": step["coefficients"]}
            if solver.noise_per_step:
                inputs["step_noise"] = noise[1 + index]
            actual = run_graph(graph, inputs)[graph.outputs["sample"]]
            # PyTorch's square root of a float32 is off by a unit in the last place here and there.
            np.testing.assert_allclose(
                actual, expected, rtol=2e-6, atol=2e-6 * max(1, np.abs(expected).max())
            )


@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "laplace"])
@pytest.mark.parametrize("count", [10, 100, 1000])
def test_tables_are_those_of_diffusers(schedule: str, count: int) -> None:
    from diffusers import DDPMScheduler

    theirs = DDPMScheduler(num_train_timesteps=count, beta_start=1e-4, beta_end=0.02, beta_schedule=schedule)
    ours = betas(schedule, count, 1e-4, 0.02)
    if schedule == "sigmoid":
        np.testing.assert_allclose(ours, theirs.betas.numpy(), rtol=2e-6)
        return
    np.testing.assert_array_equal(ours, theirs.betas.numpy())
    np.testing.assert_array_equal(products_of_alphas(ours), theirs.alphas_cumprod.numpy())


@pytest.mark.parametrize("width", [16, 64, 128, 256])
def test_times_are_embedded_as_in_lerobot(width: int) -> None:
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionSinusoidalPosEmb

    theirs = DiffusionSinusoidalPosEmb(width)(torch.arange(100)).numpy()
    # A frequency that is off by a unit in the last place moves an angle of up to 99 by one or two.
    np.testing.assert_allclose(step_embeddings(100, width), theirs, rtol=0, atol=2**-16)


@pytest.mark.parametrize("size", [(31, 47), (96, 120), (64, 40)])
def test_frames_are_resized_and_cropped_as_by_torchvision(size: tuple[int, int]) -> None:
    from torchvision.transforms import CenterCrop, Resize

    image = np.random.default_rng(1).normal(size=(64, 96, 3)).astype(np.float32)
    cropped = (size[0] - 7, size[1] - 8)
    b = Builder()
    x = b.input("x", image.shape, DType.F32, Lifetime.QUERY)
    y = smoothly_resized(b, x, *size, name="resized")
    b.output("y", centre_crop(b, y, *cropped, name="cropped"))
    graph = b.graph()
    actual = run_graph(graph, {"x": image})[graph.outputs["y"]]
    planes = torch.from_numpy(image).double().permute(2, 0, 1)[None]
    expected = CenterCrop(cropped)(Resize(size)(planes))[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
