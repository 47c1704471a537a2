from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from small_checkpoints import random_inputs

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.base import CameraSpec
from vla_simd_ros.policies.diffusion import DiffusionPolicy

Open = Callable[..., Checkpoint]

TOP = (Camera("top", 40, 56),)
VARIANTS: dict[str, dict[str, Any]] = {
    "an encoder for each camera": {},
    "three cameras, one encoder, three moments": {
        "cameras": tuple(Camera(name, 33, 33) for name in "abc"),
        "state_dim": 14,
        "action_dim": 14,
        "settings": {
            "use_group_norm": True,
            "use_separate_rgb_encoder_per_camera": False,
            "n_obs_steps": 3,
        },
    },
    "one moment, resized and cropped": {
        "cameras": TOP,
        "env_state_dim": 2,
        "settings": {"n_obs_steps": 1, "resize_shape": [44, 36], "crop_ratio": 0.9},
    },
    "no camera, shifts only, clean samples": {
        "cameras": (),
        "env_state_dim": 3,
        "settings": {
            "use_film_scale_modulation": False,
            "prediction_type": "sample",
            "noise_scheduler_type": "DDIM",
        },
    },
    "not clipped, one width, more times than an embedding is wide": {
        "cameras": TOP,
        "settings": {
            "clip_sample": False,
            "down_dims": [24],
            "crop_shape": [33, 40],
            "num_train_timesteps": 40,
        },
    },
}


def step_inputs(policy: DiffusionPolicy, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    solver = policy.solver
    drawn = ["sample", "step_noise"] if solver.noise_per_step else ["sample"]
    noise = {name: rng.standard_normal(solver.sample_shape, np.float32) for name in drawn}
    return {**noise, **solver.steps(solver.default_steps)[3]}


@pytest.mark.parametrize("variant", VARIANTS)
def test_programs_compute_what_the_network_says(checkpoint: Open, variant: str) -> None:
    policy = DiffusionPolicy(checkpoint("diffusion", **VARIANTS[variant]))
    spec, graph = policy.spec, policy.build()
    query, step = random_inputs(spec), step_inputs(policy)
    assert graph.inputs.keys() == {*query, *step}
    values = run_graph(graph, {**query, **step})
    executable = ReferenceExecutor().load(compile_graph(graph, FoldCache()))
    executable.run(Lifetime.EPISODE, {})
    executable.run(Lifetime.QUERY, query)
    outputs = executable.run(Lifetime.STEP, step)
    assert outputs["action"].shape == (spec.chunk_size, spec.action_dim)
    assert outputs["sample"].shape == policy.solver.sample_shape
    for name, actual in outputs.items():
        expected = values[graph.outputs[name]]
        assert np.abs(actual - expected).max() <= 1e-6 * np.abs(expected).max()


def test_its_specification_is_the_checkpoint_s(checkpoint: Open) -> None:
    spec = DiffusionPolicy(checkpoint("diffusion", env_state_dim=3, state_dim=5)).spec
    assert spec.type == "diffusion"
    assert list(spec.cameras.items()) == [("front", CameraSpec(40, 56)), ("wrist", CameraSpec(40, 56))]
    assert (spec.state_dim, spec.env_state_dim, spec.action_dim) == (5, 3, 6)
    assert (spec.chunk_size, spec.n_action_steps, spec.observation_steps) == (5, 5, 2)
    assert not spec.uses_instruction


def test_its_inputs_are_raw_frames_and_robot_units(checkpoint: Open) -> None:
    graph = DiffusionPolicy(checkpoint("diffusion")).build()
    given = {name: (t.shape, t.dtype, t.lifetime) for name, t in graph.inputs.items()}
    frames = {
        f"image.{name}.{moment}": ((40, 56, 3), DType.U8, Lifetime.QUERY)
        for name in ("front", "wrist")
        for moment in (0, 1)
    }
    assert given == {
        **frames,
        "state": ((2, 6), DType.F32, Lifetime.QUERY),
        "sample": ((8, 6), DType.F32, Lifetime.STEP),
        "step_noise": ((8, 6), DType.F32, Lifetime.STEP),
        "timestep": ((1,), DType.I32, Lifetime.STEP),
        "coefficients": ((5,), DType.F32, Lifetime.STEP),
    }


def test_the_chunk_starts_at_the_newest_observation(checkpoint: Open) -> None:
    opened = checkpoint("diffusion", settings={"n_obs_steps": 3})
    policy = DiffusionPolicy(opened)
    graph = policy.build()
    values = run_graph(graph, {**random_inputs(policy.spec), **step_inputs(policy)})
    unnormalizer = opened.unnormalizers["action"]
    sample = values[graph.outputs["sample"]] * unnormalizer.scale + unnormalizer.offset
    np.testing.assert_allclose(values[graph.outputs["action"]], sample[2:7], rtol=0, atol=1e-12)


def test_observations_are_ordered_by_moment_then_by_camera(checkpoint: Open) -> None:
    graph = DiffusionPolicy(checkpoint("diffusion", env_state_dim=2)).build()
    observed = next(op for op in graph.ops if op.output.name == "conditions.observed")
    parts = [
        "conditions.state",
        "keypoints.front",
        "keypoints.wrist",
        "conditions.env_state",
    ]
    names = [tensor.name.removesuffix(".out.relu") for tensor in observed.operands()]
    assert names == [f"{part}.{moment}" for moment in (0, 1) for part in parts]


def test_it_takes_no_instruction(checkpoint: Open) -> None:
    with pytest.raises(GraphError, match="diffusion takes no instruction, got 3 tokens"):
        DiffusionPolicy(checkpoint("diffusion")).build(3)


def test_graphs_share_their_arrays(checkpoint: Open) -> None:
    policy = DiffusionPolicy(checkpoint("diffusion", settings={"use_group_norm": True}))
    first, second = policy.build(), policy.build()
    assert set(first.constants.values()) == set(second.constants.values())


def test_an_old_folder_with_its_statistics_among_the_weights(checkpoint: Open, tmp_path: Path) -> None:
    new = checkpoint("diffusion", cameras=(), env_state_dim=2)
    for path in new.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    statistics = load_file(next(tmp_path.glob("policy_preprocessor*.safetensors")))
    for key, value in statistics.items():
        feature, statistic = key.rsplit(".", 1)
        for group in ("normalize_inputs", "normalize_targets", "unnormalize_outputs"):
            if (group == "normalize_inputs") != (feature == "action"):
                weights[f"{group}.buffer_{feature.replace('.', '_')}.{statistic}"] = value
    save_file(weights, tmp_path / "model.safetensors")
    for path in tmp_path.glob("policy_*"):
        path.unlink()
    policies = [DiffusionPolicy(opened) for opened in (new, load_checkpoint(tmp_path))]
    inputs = {**random_inputs(policies[0].spec), **step_inputs(policies[0])}
    graphs = [policy.build() for policy in policies]
    actions = [run_graph(graph, inputs)[graph.outputs["action"]] for graph in graphs]
    np.testing.assert_array_equal(*actions)
