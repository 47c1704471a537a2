"""The engine's actions against those that the reference implementations gave for the same observations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros import _engine
from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.measure import allowed, bound_with, distance
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.inference import Observation
from vla_simd_ros.policies.blocks import siglip

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(GOLDEN.glob("*.npz"))
# Only the rounding of folded constants separates the float64 executor from the float64 reference.
FLOAT64_BOUND = 2e-7
# What is left of a rounding may grow from step to step of a policy that iterates.
ITERATING_FLOAT64_BOUND = 5e-7


@dataclass(frozen=True)
class Golden:
    checkpoint: Checkpoint
    instruction: str
    policy: InstructedPolicy
    cases: list[Case]
    single: np.ndarray
    double: np.ndarray

    def run(self, executor: Executor) -> np.ndarray:
        executable = executor.load(self.policy.compiled)
        return np.stack([self.policy.run(executable, case)["action"] for case in self.cases])


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    data = np.load(request.param)
    recipe = json.loads(str(data["recipe"]))
    folder = tmp_path_factory.mktemp("golden") / "checkpoint"
    cameras = tuple(Camera(**camera) for camera in recipe["options"].pop("cameras"))
    make_checkpoint(recipe["policy"], folder, Options(cameras=cameras, **recipe["options"]))
    checkpoint = load_checkpoint(folder)
    policy = instruct(checkpoint, recipe["instruction"])
    cases = _cases(data, recipe.get("num_steps"))
    yield Golden(
        checkpoint,
        recipe["instruction"],
        policy,
        cases,
        data["actions_float32"],
        data["actions_float64"],
    )
    for weights in folder.glob("*.safetensors"):
        weights.unlink()


def _cases(data: Any, num_steps: int | None) -> list[Case]:
    cameras = [key for key in data if key.startswith("image.")]
    # Of one query each: a policy has those that it takes.
    given = [data.get(key) for key in ("state", "env_state", "valid", "noise")]

    def case(index: int) -> Case:
        images = {key.removeprefix("image."): data[key][index] for key in cameras}
        *observed, noise = (None if values is None else values[index] for values in given)
        return Case(Observation(images, *observed), noise, num_steps)

    return [case(index) for index in range(len(data["actions_float64"]))]


def test_every_policy_has_golden_files() -> None:
    assert {json.loads(str(np.load(path)["recipe"]))["policy"] for path in FILES} >= {
        "act",
        "diffusion",
        "impact",
        "impact_tokens",
        "minddrive",
        "octo",
        "openvla",
        "orion",
        "pi0_fast",
        "smolvla",
        "turbovla",
        "turbovla_so101",
    }


@pytest.mark.parametrize("isa", _engine.available_isas())
def test_engine_gives_the_reference_actions(golden: Golden, isa: str) -> None:
    actions = golden.run(SimdExecutor(threads=1, isa=isa))

    bound = allowed(
        distance(golden.single, golden.double).relative,
        bound_with("exact", golden.cases[0].num_steps is not None),
    )
    assert actions.shape == golden.double.shape
    assert distance(actions, golden.double).relative <= bound
    assert distance(actions, golden.single).relative <= bound


def test_engine_gives_the_same_bits_on_two_threads(golden: Golden) -> None:
    one, two = (golden.run(SimdExecutor(threads=threads)) for threads in (1, 2))

    np.testing.assert_array_equal(one, two)


def test_float64_programs_give_the_float64_reference_actions(golden: Golden) -> None:
    actions = golden.run(ReferenceExecutor(np.float64))

    iterating = golden.cases[0].num_steps is not None
    bound = ITERATING_FLOAT64_BOUND if iterating else FLOAT64_BOUND
    assert distance(actions, golden.double).relative <= bound


def test_observations_tell_the_actions_apart(golden: Golden) -> None:
    """Were they alike, a policy blind to its inputs would pass the comparisons."""
    first, second = golden.double

    assert distance(first, second).relative > 1e-3


@pytest.mark.parametrize("golden", [GOLDEN / "smolvla_two_cameras.npz"], indirect=True)
def test_one_position_off_is_noticed(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of an image's patches with the positions of the row before: what a coordinate that is rounded
    otherwise does."""
    right = siglip.position_indices

    def off(count: int, grid: int, half: bool) -> np.ndarray:
        indices = right(count, grid, half).copy()
        indices[count // 2] -= 1
        return indices

    monkeypatch.setattr(siglip, "position_indices", off)
    policy = instruct(golden.checkpoint, golden.instruction)
    actions = replace(golden, policy=policy).run(SimdExecutor(threads=1))
    bound = allowed(distance(golden.single, golden.double).relative, bound_with("exact", iterates=True))
    assert distance(actions, golden.double).relative > 100 * bound
