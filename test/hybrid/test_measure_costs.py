"""Costs of the blocks of small policies: which there are, what crosses and what weighs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.partition import cut_points, partition, query_blocks
from vla_simd_ros.hybrid.measure_costs import STEPS, measure_costs


def small_act(folder: Path) -> None:
    options = Options(
        cameras=(Camera("front", 32, 32),),
        sizes={"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1},
    )
    make_checkpoint("act", folder, options)


def small_diffusion(folder: Path) -> None:
    settings = {"down_dims": [32, 64], "n_groups": 4, "num_inference_steps": 2}
    make_checkpoint("diffusion", folder, Options(cameras=(Camera("front", 32, 32),), settings=settings))


@pytest.mark.parametrize("make", [small_act, small_diffusion])
def test_every_block_is_measured_on_both_sides(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "policy")
    checkpoint = load_checkpoint(tmp_path / "policy")
    policy = instruct(checkpoint, "")
    (case,) = random_cases(checkpoint, 1, seed=0)
    said: list[str] = []
    costs = measure_costs(
        policy, case, ReferenceExecutor(np.float32), ReferenceExecutor(np.float32), 1, said.append
    )

    iterates = bool(policy.compiled.programs[Lifetime.STEP].ops)
    names = [block.name for block in costs.blocks]
    assert names == [*query_blocks(policy.compiled), *([STEPS] if iterates else [])]
    assert len(said) == len(names)
    for block in costs.blocks:
        assert block.suffix_s > 0.0
        assert math.isinf(block.prefix_s) == (block.name == STEPS)
        crossing = (
            partition(policy.compiled, block.name).boundary_bytes
            if block.name in cut_points(policy.compiled)
            else 0
        )
        assert block.boundary_bytes == crossing
    query = policy.compiled.programs[Lifetime.QUERY]
    assert sum(b.suffix_bytes for b in costs.blocks if b.name != STEPS) >= sum(
        tensor.nbytes for tensor in query.constants
    )
    assert costs.suffix_threads == 1
    assert policy.spec.type in costs.source
