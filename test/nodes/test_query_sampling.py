from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.inference import InputError
from vla_simd_ros.nodes.param import ParameterError, checked
from vla_simd_ros.nodes.query_sampling import SAMPLING_PARAMETERS, QuerySampling
from vla_simd_ros.policies.base import Guidance, PolicySpec


class Solver:
    default_steps = 4
    sample_shape = (2, 2)
    noise_per_step = False
    schedules = ("linear", "exp")
    admitted = (2, 4)

    def __init__(self, enabled: bool = True) -> None:
        self.guidance = Guidance("exp", horizon=6, max_weight=2.5, enabled=enabled)

    def steps(self, count: int) -> Any:
        if count not in self.admitted:
            raise ValueError

    def prefix_weights(self, rows: int, frozen: int, horizon: int, schedule: str) -> Any: ...
    def guided_steps(self, count: int, max_guidance_weight: float) -> Any: ...


class Policy:
    """Its noise is the seed and the number of steps."""

    def __init__(self, solver: Any = None, prefix: bool = False) -> None:
        self.spec = PolicySpec("fake", {}, 1, 0, 1, 4, 4)
        self.solver = solver
        self.supports_prefix = prefix

    def noise(self, seed: int, num_steps: int | None = None) -> np.ndarray:
        if self.solver is None:
            raise InputError("the policy 'fake' has no solver, it takes no noise")
        if num_steps == 7:
            raise InputError("num_steps is 7: expected at most 6")
        return np.array([seed, num_steps])


def sampling(policy: Policy, **changes: Any) -> QuerySampling:
    return QuerySampling(policy, checked(SAMPLING_PARAMETERS, changes))


def test_a_policy_of_one_pass_is_given_nothing() -> None:
    made = sampling(Policy())
    sampled = made.draw()
    assert (sampled.arguments, sampled.num_steps, sampled.noise_seed) == ({}, 0, 0)
    assert not made.takes_fewer_steps and not made.continues


def test_noise_can_be_made_again_from_its_seed() -> None:
    first, second = (sampling(Policy(Solver()), seed=5) for _ in range(2))
    drawn = [first.draw(), first.draw()]
    assert [each.noise_seed for each in drawn] == [second.draw().noise_seed for _ in range(2)]
    assert drawn[0].noise_seed != drawn[1].noise_seed
    assert sampling(Policy(Solver()), seed=6).draw().noise_seed != drawn[0].noise_seed
    assert sampling(Policy(Solver())).draw().noise_seed != sampling(Policy(Solver())).draw().noise_seed
    assert drawn[0].arguments["noise"].tolist() == [drawn[0].noise_seed, 4]


def test_fewer_steps_are_advised_only_where_they_can_be_taken() -> None:
    assert sampling(Policy(Solver())).takes_fewer_steps
    fixed = Solver()
    fixed.admitted = (4, 8)
    assert not sampling(Policy(fixed)).takes_fewer_steps


def test_steps_may_change_at_any_time() -> None:
    made = sampling(Policy(Solver()), num_steps=2)
    assert made.draw().arguments["num_steps"] == made.draw().num_steps == 2
    made.set_num_steps(5)
    assert made.draw().num_steps == 5
    with pytest.raises(ParameterError, match="num_steps: got 7: num_steps is 7: expected at most 6"):
        made.set_num_steps(7)
    assert made.draw().num_steps == 5
    made.set_num_steps(0)
    assert made.draw().num_steps == 4, "the checkpoint's"


@pytest.mark.parametrize(
    ("policy", "changes", "message"),
    [
        (Policy(), {"num_steps": 3}, "num_steps: got 3: the policy 'fake' has no solver"),
        (Policy(), {"seed": 3}, "seed: got 3, but the policy 'fake' draws no noise"),
        (Policy(), {"prefix_schedule": "exp"}, "got 'exp', but the policy 'fake' continues no chunks"),
        (Policy(Solver()), {"prefix_schedule": "ones"}, "got 'ones', expected one of linear, exp"),
        (Policy(Solver()), {"num_steps": -1}, "num_steps: got -1, expected 0 to 1000"),
        (Policy(Solver()), {"num_steps": 2000}, "num_steps: got 2000, expected 0 to 1000"),
        (Policy(Solver()), {"max_guidance_weight": -1.0}, r"got -1\.0, expected 0\.0 to 1000000\.0"),
        (Policy(Solver()), {"execution_horizon": -2}, "execution_horizon: got -2, expected at least -1"),
    ],
)
def test_what_a_policy_cannot_be_given(policy: Policy, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        sampling(policy, **changes)


def test_rows_of_the_previous_chunk() -> None:
    made = sampling(Policy(Solver(), True), execution_horizon=3, prefix_schedule="exp", max_guidance_weight=5)
    assert made.continues
    rows = np.zeros((4, 1))
    for frozen, horizon in ((1, 3), (4, 4)):
        prefix = made.prefix(rows, frozen)
        assert (prefix.frozen, prefix.horizon) == (frozen, horizon), "frozen rows are held in any case"
        assert (prefix.schedule, prefix.max_guidance_weight) == ("exp", 5.0)
    assert not sampling(Policy(Solver(), True), execution_horizon=0).continues
    assert not sampling(Policy(Solver(), False), execution_horizon=3).continues


def test_the_checkpoint_says_how_chunks_continue_where_no_parameter_does() -> None:
    made = sampling(Policy(Solver(), True))
    assert made.continues
    rows = np.zeros((9, 1))
    prefix = made.prefix(rows, 2)
    assert (prefix.horizon, prefix.schedule, prefix.max_guidance_weight) == (6, None, None), (
        "the policy's own"
    )
    assert made.prefix(rows, 8).horizon == 8
    switched_off = Policy(Solver(enabled=False), True)
    assert not sampling(switched_off).continues
    asked = sampling(switched_off, execution_horizon=4)
    assert asked.continues and asked.prefix(rows, 2).horizon == 4
