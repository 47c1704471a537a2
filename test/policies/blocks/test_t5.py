from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.policies.blocks.t5 import read_t5_config, relative_position_buckets
from vla_simd_ros.policies.impact import ImpactPolicy
from vla_simd_ros.policies.octo import OctoPolicy
from vla_simd_ros.policies.weights import Weights

PREFIX = "model.text.model."
# First distance of each bucket, for keys before the query, with 32 buckets up to distance 128.
FIRST_DISTANCES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)


def test_buckets_of_keys_before_the_query() -> None:
    before = relative_position_buckets(200, 32, 128)[199][::-1]
    for distance, bucket in enumerate(before):
        assert bucket == sum(distance >= first for first in FIRST_DISTANCES) - 1


def test_keys_after_the_query_have_buckets_of_their_own() -> None:
    bucket = relative_position_buckets(60, 32, 128)
    after = np.triu_indices(60, 1)
    np.testing.assert_array_equal(bucket[after], bucket.T[after] + 16)
    assert not bucket.diagonal().any()


def stored_names(checkpoint: Checkpoint) -> dict[str, Any]:
    return {n[len(PREFIX) :]: None for n in checkpoint.tensors if n.startswith(PREFIX)}


def test_sizes_follow_from_the_weights_where_nothing_is_stated(checkpoint: Callable[..., Checkpoint]) -> None:
    whole = checkpoint("impact")
    weights, names = Weights(whole.weights, PREFIX), stored_names(whole)
    inferred = read_t5_config(weights, names, {})
    assert inferred == read_t5_config(weights, names, whole.config["text_config"])
    assert (inferred.width, inferred.inner, inferred.layers, inferred.heads) == (24, 32, 2, 4)
    assert (inferred.buckets, inferred.max_distance, inferred.eps) == (32, 128, 1e-6)


def test_a_gated_encoder_is_refused(checkpoint: Callable[..., Checkpoint]) -> None:
    whole = checkpoint("impact")
    with pytest.raises(CheckpointError, match="feed_forward_proj is 'gated-gelu', expected 'relu'"):
        read_t5_config(
            Weights(whole.weights, PREFIX), stored_names(whole), {"feed_forward_proj": "gated-gelu"}
        )


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"d_model": "wide"}, r"'d_model' is a string \('wide'\), expected an integer"),
        ({"num_layers": 0}, "num_layers is 0, expected 1 or more"),
        ({"d_kv": None}, "'d_kv' is null, expected an integer"),
        ({"num_heads": 1.5}, r"'num_heads' is a number \(1.5\), expected an integer"),
        ({"relative_attention_num_buckets": 3}, "num_buckets is 3, expected 4 or more"),
        ({"relative_attention_max_distance": 8}, "max_distance is 8, expected 9 or more"),
        ({"layer_norm_epsilon": -1}, "layer_norm_epsilon is -1.0, expected 0 or more"),
        ({"layer_norm_epsilon": float("nan")}, "'layer_norm_epsilon' is nan, expected a finite number"),
    ],
)
def test_sizes_that_no_encoder_has(
    checkpoint: Callable[..., Checkpoint], stated: dict[str, Any], message: str
) -> None:
    whole = checkpoint("impact")
    with pytest.raises(CheckpointError, match=message):
        read_t5_config(Weights(whole.weights, PREFIX), stored_names(whole), stated)


def test_a_table_of_another_rank_is_refused() -> None:
    class Flat:
        def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
            return (64,)

    flat: Any = Flat()
    with pytest.raises(CheckpointError, match=r"has shape \[64\], expected two dimensions"):
        read_t5_config(Weights(flat), {}, {})


def test_the_encoder_follows_its_definition(checkpoint: Callable[..., Checkpoint]) -> None:
    whole = checkpoint("impact")
    ids = np.array([5, 900, 31, 1], np.int32)
    graph = ImpactPolicy(whole).build(len(ids))
    inputs = {
        name: np.zeros(t.shape, t.dtype.numpy) for name, t in graph.inputs.items() if name != "token_ids"
    }
    values = run_graph(graph, {**inputs, "token_ids": ids})
    got = next(v for t, v in values.items() if t.name == "text.1.final_norm")
    np.testing.assert_allclose(got, encode(whole, ids), rtol=1e-9, atol=1e-12)


def test_padding_reads_the_text_and_nothing_reads_padding(checkpoint: Callable[..., Checkpoint]) -> None:
    whole = checkpoint("octo", state_dim=0, action_dim=7)
    ids = np.array([5, 900, 31, 1], np.int32)
    graph = OctoPolicy(whole).build(len(ids))
    inputs = {
        name: np.zeros(t.shape, t.dtype.numpy) for name, t in graph.inputs.items() if name != "token_ids"
    }
    values = run_graph(graph, {**inputs, "token_ids": ids})
    got = next(v for t, v in values.items() if t.name == "text.1.final_norm")
    expected = encode(whole, np.concatenate([ids, np.zeros(4, np.int32)]), text=4)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[:4], encode(whole, ids), rtol=1e-9, atol=1e-12)


def encode(whole: Checkpoint, ids: np.ndarray, text: int | None = None) -> np.ndarray:
    """T5's encoder, written out; only the first ``text`` ids (None: all) are attended to."""

    def w(name: str) -> np.ndarray:
        return whole.weights.tensor(PREFIX + name).astype(np.float64)

    def rms(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w(name)

    count, heads = len(ids), 4
    table = w("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
    bias = table[relative_position_buckets(count, 32, 128)]
    x = w("shared.weight")[ids]
    for layer in range(2):
        p = f"encoder.block.{layer}.layer."
        y = rms(x, p + "0.layer_norm.weight")
        q, k, v = ((y @ w(f"{p}0.SelfAttention.{n}.weight").T).reshape(count, heads, -1) for n in "qkv")
        mixed = []
        for h in range(heads):
            scores = q[:, h] @ k[:, h].T + bias[:, :, h]
            scores[:, len(ids) if text is None else text :] = -np.inf
            weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
            mixed.append(weights @ v[:, h])
        x = x + np.hstack(mixed) @ w(p + "0.SelfAttention.o.weight").T
        y = rms(x, p + "1.layer_norm.weight")
        y = np.maximum(y @ w(p + "1.DenseReluDense.wi.weight").T, 0)
        x = x + y @ w(p + "1.DenseReluDense.wo.weight").T
    return rms(x, "encoder.final_layer_norm.weight")
