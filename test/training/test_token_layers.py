"""The token layers against the same layers written in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

if TYPE_CHECKING:
    from vla_simd_ros.training.token_layers import TokenLayers

pytestmark = pytest.mark.needs_torch

F64 = npt.NDArray[np.float64]
PREFIX_WIDTH = 10


@pytest.fixture
def layers() -> TokenLayers:
    import torch

    from vla_simd_ros.training.token_layers import TokenConfig, TokenLayers

    torch.manual_seed(0)
    config = TokenConfig(
        token_width=24, n_token_layers=2, token_heads=4, token_kv_heads=2, token_feedforward=20, action_bins=8
    )
    network = TokenLayers(config, PREFIX_WIDTH, action_dim=3).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


def norm(x: F64, weight: F64) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def turned(x: F64, base: float = 10000.0) -> F64:
    """[rows, heads, head], each row by its number."""
    rows, _, head = x.shape
    angles = np.arange(rows)[:, None] * base ** (-np.arange(0, head, 2) / head)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    one, two = x[..., : head // 2], x[..., head // 2 :]
    return np.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)


def reference(network: TokenLayers, prefix: F64, ids: list[int]) -> F64:
    """Scores behind each of ``ids`` after ``prefix`` rows, all of which are there."""
    w = {name: values.detach().numpy() for name, values in network.state_dict().items()}
    config = network.config
    x = np.concatenate(
        [prefix @ w["prefix_proj.weight"].T + w["prefix_proj.bias"], w["embed_tokens.weight"][ids]]
    )
    for index in range(config.n_token_layers):
        name = f"layers.{index}"
        y = norm(x, w[f"{name}.input_layernorm.weight"])
        q, k, v = (
            (y @ w[f"{name}.self_attn.{part}_proj.weight"].T).reshape(len(x), -1, config.head)
            for part in "qkv"
        )
        q, k = turned(q), turned(k)
        found = np.empty_like(q)
        for head in range(config.token_heads):
            shared = head // (config.token_heads // config.token_kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(config.head)
            scores[np.triu_indices(len(x), 1)] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True))
            found[:, head] = weights / weights.sum(1, keepdims=True) @ v[:, shared]
        x = x + found.reshape(len(x), -1) @ w[f"{name}.self_attn.o_proj.weight"].T
        y = norm(x, w[f"{name}.post_attention_layernorm.weight"])
        gate = y @ w[f"{name}.mlp.gate_proj.weight"].T
        up = y @ w[f"{name}.mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{name}.mlp.down_proj.weight"].T
    return np.asarray(norm(x[len(prefix) :], w["norm.weight"]) @ w["lm_head.weight"].T)


def prefixes(*lengths: int) -> tuple[Any, Any, list[F64]]:
    """A padded batch, which rows of it there are, and its sequences."""
    import torch

    generator = np.random.default_rng(0)
    rows = [generator.normal(size=(length, PREFIX_WIDTH)) for length in lengths]
    batch = np.full((len(rows), max(lengths), PREFIX_WIDTH), 7.0)
    there = np.zeros(batch.shape[:2], bool)
    for place, sequence in enumerate(rows):
        batch[place, : len(sequence)] = sequence
        there[place, : len(sequence)] = True
    return torch.from_numpy(batch), torch.from_numpy(there), rows


def test_scores_are_those_of_the_layers_written_out(layers: TokenLayers) -> None:
    import torch

    batch, there, rows = prefixes(5, 3)
    ids = [[8, 2, 0, 7, 5], [8, 1, 1, 6, 3]]
    scores = layers.read_tokens(torch.tensor(ids), layers.read_prefix(batch, there)).detach().numpy()
    for found, sequence, given in zip(scores, rows, ids, strict=True):
        np.testing.assert_allclose(found, reference(layers, sequence, given), rtol=1e-9, atol=1e-9)


def test_what_padded_rows_hold_is_read_by_nobody(layers: TokenLayers) -> None:
    import torch

    batch, there, _ = prefixes(2, 4)
    tokens = torch.tensor([[1, 2, 3]] * 2)
    before = layers.score_chunks(tokens, layers.read_prefix(batch, there))
    batch[0, 2:] = -50.0
    after = layers.score_chunks(tokens, layers.read_prefix(batch, there))
    assert torch.equal(before, after)


def test_a_chunk_is_scored_behind_the_first_token(layers: TokenLayers) -> None:
    import torch

    batch, there, rows = prefixes(4)
    scores = layers.score_chunks(torch.tensor([[3, 1, 4]]), layers.read_prefix(batch, there))
    expected = reference(layers, rows[0], [8, 3, 1])
    np.testing.assert_allclose(scores[0].detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_a_prefix_serves_several_sequences(layers: TokenLayers) -> None:
    import torch

    batch, there, _ = prefixes(4, 2)
    kept = layers.read_prefix(batch, there)
    one, two = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5, 6], [7, 0]])
    both = layers.score_chunks(torch.cat((one, two)), kept.repeated(2))
    assert torch.allclose(both[:2], layers.score_chunks(one, kept))
    assert torch.allclose(both[2:], layers.score_chunks(two, kept))
    last = torch.tensor([1])
    assert torch.allclose(layers.score_chunks(two[last], kept.of(last)), both[3:])


def test_actions_become_the_bins_that_they_lie_in(layers: TokenLayers) -> None:
    import torch

    layers.action_low.copy_(torch.tensor([-1.0, 0.0, 10.0]))
    layers.action_high.copy_(torch.tensor([1.0, 8.0, 18.0]))
    actions = torch.tensor([[-1.0, 0.5, 10.0], [0.99, 7.2, 17.9], [-3.0, 8.0, 99.0]], dtype=torch.float64)
    tokens = layers.tokenize(actions)
    assert tokens.tolist() == [[0, 0, 0], [7, 7, 7], [0, 7, 7]]
    centres = [[-0.875, 0.5, 10.5], [0.875, 7.5, 17.5]]
    np.testing.assert_allclose(layers.untokenize(tokens[:2]).numpy(), centres)
    assert torch.equal(layers.tokenize(layers.untokenize(tokens)), tokens)
