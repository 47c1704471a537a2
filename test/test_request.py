"""What a query is asked, refused in the same words wherever it comes from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.decoding.action_decoder import ActionDecoder
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS
from vla_simd_ros.executors.base import InputError, Runnable
from vla_simd_ros.observation import blank_observation, observation_inputs
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.request import make_request
from vla_simd_ros.sampling import Prefix, make_sampler


@pytest.mark.parametrize(
    "given", [{"noise": np.zeros((5, 3))}, {"num_steps": 3}, {"prefix": Prefix(np.zeros((2, 3)), 1)}]
)
def test_one_pass_takes_an_observation_alone(given: dict[str, object], tmp_path: Path) -> None:
    make_checkpoint("act", tmp_path / "act", small_options("act"))
    spec = define_policy(load_checkpoint(tmp_path / "act")).spec
    request = make_request(spec, None, blank_observation(spec))
    assert request.plan is None
    assert list(request.values) == list(observation_inputs(spec, blank_observation(spec)))
    (name,) = given
    with pytest.raises(InputError, match=f"the policy 'act' has no solver.* no {name}"):
        make_request(spec, None, blank_observation(spec), **given)  # type: ignore[arg-type]


def test_an_iterating_policy_takes_steps_noise_and_prefix(tmp_path: Path) -> None:
    make_checkpoint("smolvla", tmp_path / "smolvla", small_options("smolvla"))
    definition = define_policy(load_checkpoint(tmp_path / "smolvla"))
    spec, sampler = definition.spec, make_sampler(definition, 0)
    assert sampler is not None
    noise = sampler.noise(7, 2)
    rows = np.ones((2, spec.action_dim), np.float32)
    request = make_request(
        spec, sampler, blank_observation(spec), noise=noise, num_steps=2, prefix=Prefix(rows, 1)
    )
    assert request.plan is not None
    assert len(request.plan.steps) == 2
    np.testing.assert_array_equal(request.plan.noise, noise)
    np.testing.assert_array_equal(request.values["prefix"][:2], rows)
    assert request.values["prefix_weights"].any()


def test_a_prompt_that_tells_the_state_takes_its_place(tmp_path: Path) -> None:
    make_checkpoint("pi0_fast", tmp_path / "pi0_fast", small_options("pi0_fast"))
    definition = define_policy(load_checkpoint(tmp_path / "pi0_fast"))
    spec, tokens = definition.spec, definition.action_tokens
    assert tokens is not None
    decoder = ActionDecoder(spec, tokens, no_passes, DEFAULT_OPTIONS)
    seen = dataclasses.replace(blank_observation(spec), state=np.full(6, 100.0, np.float32))
    request = make_request(spec, None, seen, decoder=decoder, instruction=50, text="go on")
    assert sorted(request.values) == ["image.front", "image.wrist", "prompt_hidden", "prompt_ids"]
    assert request.values["prompt_ids"].shape == (51,)
    shown = int(np.count_nonzero(request.values["prompt_hidden"] == 0)) - 1
    assert request.tokens is not None
    assert request.tokens.prefix_rows == tokens.prefix_rows(shown)
    other = make_request(spec, None, blank_observation(spec), decoder=decoder, instruction=50, text="go on")
    assert not np.array_equal(other.values["prompt_ids"], request.values["prompt_ids"])


def no_passes(rows: int) -> Runnable:
    raise AssertionError(f"a pass of {rows} tokens")
