from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.needs_torch


def test_buckets_of_distances() -> None:
    """Eight exact buckets either way, then eight that widen, the last for everything from 128 on."""
    import torch

    from vla_simd_ros.training.t5 import distance_bucket

    distances = torch.arange(-200, 201)
    buckets = distance_bucket(distances, 32, 128)

    for distance, bucket in zip(distances.tolist(), buckets.tolist(), strict=True):
        size = abs(distance)
        exact = 8 + 8 * math.log(max(size, 1) / 8) / math.log(16)
        expected = size if size < 8 else min(15, math.floor(exact + 1e-6))
        assert bucket == expected + (16 if distance > 0 else 0), distance


def test_masked_tokens_do_not_matter() -> None:
    import torch

    from vla_simd_ros.training.t5 import T5Config, T5Encoder

    torch.manual_seed(0)
    encoder = T5Encoder(T5Config(8, 4, 8, 2, 2, vocab_size=20)).double()
    ids = torch.tensor([[3, 4, 5, 0, 0], [3, 4, 5, 6, 7]])
    mask = torch.tensor([[True, True, True, False, False]] * 2)
    states = encoder(ids, mask)

    torch.testing.assert_close(states[0, :3], states[1, :3], rtol=0, atol=1e-14)
    torch.testing.assert_close(encoder(ids[:1, :3], mask[:1, :3]), states[:1, :3], rtol=0, atol=1e-14)
