from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_checkpoints import random_inputs

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.checkpoints.synthesis import Camera
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.policies.act import ActPolicy
from vla_simd_ros.policies.base import CameraSpec

Open = Callable[..., Checkpoint]

VARIANTS: dict[str, dict[str, Any]] = {
    "two cameras of different sizes": {},
    "one camera, other widths": {
        "cameras": (Camera("top", 32, 64),),
        "state_dim": 14,
        "action_dim": 3,
        "sizes": {"chunk_size": 9, "heads": 2},
    },
    "no camera": {"cameras": (), "env_state_dim": 7},
    "no state": {"state_dim": 0, "env_state_dim": 2},
    "pre-norm and gelu": {
        "sizes": {"pre_norm": True, "encoder_layers": 1, "decoder_layers": 3},
        "settings": {"feedforward_activation": "gelu"},
    },
    "without the training encoder": {"settings": {"use_vae": False}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_programs_compute_what_the_network_says(checkpoint: Open, variant: str) -> None:
    policy = ActPolicy(checkpoint("act", **VARIANTS[variant]))
    spec, graph = policy.spec, policy.build()
    inputs = random_inputs(spec)
    assert inputs.keys() == graph.inputs.keys()
    expected = run_graph(graph, inputs)[graph.outputs["action"]]
    assert expected.shape == (spec.chunk_size, spec.action_dim)
    executable = ReferenceExecutor().load(compile_graph(graph, FoldCache()))
    actions = executable.run(Lifetime.QUERY, inputs)["action"]
    assert np.abs(actions - expected).max() <= 1e-6 * np.abs(expected).max()


def test_its_specification_is_the_checkpoint_s(checkpoint: Open) -> None:
    changes = {
        "env_state_dim": 3,
        "state_dim": 5,
        "settings": {"temporal_ensemble_coeff": 0.01, "n_action_steps": 1},
    }
    spec = ActPolicy(checkpoint("act", **changes)).spec
    assert spec.type == "act"
    assert list(spec.cameras.items()) == [("front", CameraSpec(40, 56)), ("wrist", CameraSpec(33, 47))]
    assert (spec.state_dim, spec.env_state_dim, spec.action_dim) == (5, 3, 6)
    assert (spec.chunk_size, spec.n_action_steps, spec.temporal_ensemble_coeff) == (5, 1, 0.01)
    assert (spec.uses_instruction, spec.max_instruction_tokens) == (False, 0)


def test_its_inputs_are_raw_frames_and_robot_units(checkpoint: Open) -> None:
    graph = ActPolicy(checkpoint("act")).build()
    given = {name: (t.shape, t.dtype, t.lifetime) for name, t in graph.inputs.items()}
    assert given == {
        "state": ((1, 6), DType.F32, Lifetime.QUERY),
        "image.front": ((40, 56, 3), DType.U8, Lifetime.QUERY),
        "image.wrist": ((33, 47, 3), DType.U8, Lifetime.QUERY),
    }


def test_tokens_come_in_the_configuration_s_order(checkpoint: Open) -> None:
    cameras = (Camera("wrist", 33, 47), Camera("front", 40, 56))
    graph = ActPolicy(checkpoint("act", cameras=cameras, env_state_dim=2)).build()
    producers = graph.producers()
    tokens = producers[next(op.output for op in graph.ops if op.output.name == "tokens.all")]
    single, first, second = (t.name for t in tokens.operands())
    assert (first, second) == ("tokens.image.wrist", "tokens.image.front")
    parts = producers[next(t for t in tokens.operands() if t.name == single)]
    assert [t.name for t in parts.operands()] == ["tokens.latent", "tokens.state", "tokens.env_state"]
    assert tokens.output.shape == (3 + 2 * 2 + 2 * 2, 32)


def test_a_camera_may_be_called_anything(checkpoint: Open) -> None:
    cameras = (Camera("state", 32, 32), Camera("latent", 32, 32), Camera("single", 32, 32))
    graph = ActPolicy(checkpoint("act", cameras=cameras)).build()
    assert set(graph.inputs) == {"state", "image.state", "image.latent", "image.single"}


def test_it_takes_no_instruction(checkpoint: Open) -> None:
    with pytest.raises(GraphError, match="act takes no instruction, got 3 tokens"):
        ActPolicy(checkpoint("act")).build(3)


def test_a_weight_of_another_shape_is_named(checkpoint: Open) -> None:
    whole = checkpoint("act")
    changed = {**whole.config, "dim_feedforward": 64}
    broken = Checkpoint(**{**vars(whole), "config": changed})
    with pytest.raises(
        CheckpointError, match=r"encoder\.layers\.0\.linear1\.weight.* \[48, 32\].* \[64, 32\]"
    ):
        ActPolicy(broken).build()


def test_a_latent_that_no_memory_holds_is_a_wrong_shape(checkpoint: Open) -> None:
    whole = checkpoint("act")
    broken = Checkpoint(**{**vars(whole), "config": {**whole.config, "latent_dim": 10**30}})
    with pytest.raises(CheckpointError, match=r"encoder_latent_input_proj\.weight.* expected \[32, 1000"):
        ActPolicy(broken).build()


def test_graphs_share_their_arrays(checkpoint: Open) -> None:
    policy = ActPolicy(checkpoint("act"))
    first, second = policy.build(), policy.build()
    assert set(first.constants.values()) == set(second.constants.values())
