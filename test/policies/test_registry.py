from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.policies.registry import POLICY_TYPES, define_policy


@pytest.mark.parametrize("policy", POLICY_TYPES)
def test_the_checkpoint_s_type_chooses(checkpoint: Callable[..., Checkpoint], policy: str) -> None:
    assert define_policy(checkpoint(policy)).spec.type == policy


def test_an_unknown_type_is_named(checkpoint: Callable[..., Checkpoint]) -> None:
    other = dataclasses.replace(checkpoint("act"), type="vqbet")
    with pytest.raises(
        CheckpointError, match="policy type 'vqbet' is not supported, expected one of act, diffusion, impact"
    ):
        define_policy(other)
