from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from iterating_policy import ACTIONS, ROWS, SIDE, STATE, IteratingPolicy

from vla_simd_ros.benchmarks.backend import OURS_FP32, PEERS, RUNNERS, Calibrated, Setup, resolve
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.inference import Observation, Prefix, make_sampler

pytestmark = pytest.mark.needs_torch

IDS = np.array([3, 1, 7], np.int32)


def instructed(definition: IteratingPolicy) -> InstructedPolicy:
    ids = IDS if definition.text else None
    compiled = compile_graph(definition.build(None if ids is None else len(ids)), FoldCache())
    return InstructedPolicy(definition.spec, compiled, ids, make_sampler(definition, 0))


def case(definition: IteratingPolicy, seed: int, num_steps: int | None = None) -> Case:
    rng = np.random.default_rng(seed)
    steps = () if definition.observation_steps == 1 else (definition.observation_steps,)
    observation = Observation(
        {"front": rng.integers(0, 256, (*steps, SIDE, SIDE, 3), np.uint8)},
        rng.normal(size=(*steps, STATE)).astype(np.float32),
    )
    sampler = make_sampler(definition, seed)
    assert sampler is not None
    plan = sampler.plan(num_steps=num_steps)
    actions = rng.normal(size=(2, ACTIONS))
    return Case(observation, plan.noise, len(plan.steps), Prefix(actions, 1) if definition.prefix else None)


@pytest.fixture(params=[name for name in PEERS if name != OURS_FP32])
def peer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[InstructedPolicy], Any]:
    def make(policy: InstructedPolicy) -> Any:
        from vla_simd_ros.benchmarks.peers import policy_programs

        monkeypatch.setattr(policy_programs, "load_checkpoint", lambda folder: folder)
        monkeypatch.setattr(policy_programs, "instruct", lambda checkpoint, instruction: policy)
        return resolve(RUNNERS[request.param].factory)(Setup("", "", EngineSettings(threads=1)))

    return make


DEFINITIONS = [
    IteratingPolicy(text=True, prefix=True),
    IteratingPolicy(observation_steps=2, noise_per_step=True),
]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_steps_share_what_the_query_left_behind(
    peer: Callable[[InstructedPolicy], Any], definition: IteratingPolicy
) -> None:
    policy = instructed(definition)
    backend = peer(policy)
    cases = [case(definition, seed, steps) for seed, steps in ((0, None), (1, 2), (0, None))]
    if isinstance(backend, Calibrated):
        backend.calibrate(cases[:2])
    answers = [np.array(backend.query(each)) for each in cases]
    reference = ReferenceExecutor().load(policy.compiled)
    for each, answer in zip(cases, answers, strict=True):
        expected = policy.run(reference, each)["action"]
        assert answer.shape == (ROWS, ACTIONS)
        tolerance = RUNNERS["openvino-int8"].tolerance if isinstance(backend, Calibrated) else 1e-5
        assert tolerance is not None
        assert np.abs(answer - expected).max() <= tolerance * np.abs(expected).max()
    assert np.array_equal(answers[0], answers[2])
    assert backend.spent_ms.keys() == {"query", "step"}
