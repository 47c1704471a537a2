from __future__ import annotations

import dataclasses

import numpy as np

from vla_simd_ros.checkpoints import Checkpoint, Feature, FeatureKind
from vla_simd_ros.fidelity.observations import random_observations


def test_observations_are_what_a_robot_gives(seeing: Checkpoint) -> None:
    first, second = random_observations(seeing, 2, seed=0)

    assert {name: image.shape for name, image in first.images.items()} == {
        "front": (40, 64, 3),
        "wrist": (32, 48, 3),
    }
    for image in first.images.values():
        assert image.dtype == np.uint8
        assert image.min() == 0
        assert image.max() == 255
    assert first.state is not None
    assert first.state.dtype == np.float32
    assert first.env_state is None
    assert not np.array_equal(first.images["front"], second.images["front"])


def test_state_is_in_the_range_of_the_statistics(blind: Checkpoint) -> None:
    normalizer = blind.normalizers["observation.environment_state"]
    states = np.stack([np.asarray(o.env_state) for o in random_observations(blind, 50, seed=0)])

    normalized = (states - normalizer.offset) / normalizer.divisor
    assert np.abs(normalized).max() <= 1.5 + 1e-5
    assert normalized.std() > 0.5


def test_a_seed_names_the_observations(seeing: Checkpoint) -> None:
    first, again, other = (random_observations(seeing, 3, seed=seed)[2] for seed in (1, 1, 2))

    np.testing.assert_array_equal(first.images["wrist"], again.images["wrist"])
    assert not np.array_equal(first.images["wrist"], other.images["wrist"])


def test_only_the_vectors_that_a_policy_takes_are_made(blind: Checkpoint) -> None:
    (env,) = (f for f in blind.features_in.values() if f.kind is FeatureKind.ENV)
    more = Feature("observation.velocity", FeatureKind.STATE, (2,))
    second = Feature("observation.object", FeatureKind.ENV, (9,))
    several = dataclasses.replace(
        blind, features_in={**blind.features_in, more.name: more, second.name: second}
    )

    (plain,), (same,) = (random_observations(c, 1, seed=0) for c in (blind, several))
    assert plain.env_state is not None
    assert plain.env_state.shape == env.shape
    np.testing.assert_array_equal(plain.env_state, same.env_state)
    assert (plain.state is None) == (same.state is None)
