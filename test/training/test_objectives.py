"""The losses of action-token policies against the same ones in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

if TYPE_CHECKING:
    from vla_simd_ros.training.impact_tokens import ImpactTokensPolicy
    from vla_simd_ros.training.token_batches import TokenBatch

pytestmark = pytest.mark.needs_torch

BINS, TOKENS, BATCH = 6, 8, 3


@pytest.fixture
def policy() -> ImpactTokensPolicy:
    import torch

    from vla_simd_ros.training.bert import BertConfig
    from vla_simd_ros.training.impact_tokens import ImpactTokensConfig, ImpactTokensPolicy

    torch.manual_seed(0)
    text = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    sizes: dict[str, Any] = {"dim_model": 8, "n_heads": 2, "dim_feedforward": 8, "n_encoder_layers": 1}
    sizes |= {"token_width": 16, "token_heads": 2, "token_kv_heads": 2, "token_feedforward": 16}
    config = ImpactTokensConfig(
        **sizes,
        n_token_layers=2,
        backbone_width=4,
        chunk_size=4,
        action_dim=2,
        action_bins=BINS,
        text_config=text,
    )
    policy = ImpactTokensPolicy(config)
    for parameter in policy.model.tokens.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return policy


@pytest.fixture
def batch() -> TokenBatch:
    import torch

    from vla_simd_ros.training.impact_tokens import Prefix
    from vla_simd_ros.training.token_batches import TokenBatch

    there = torch.ones(BATCH, 5, dtype=torch.bool)
    there[1, 3:] = False
    prefix = Prefix(torch.randn(BATCH, 5, 8), there)
    tokens, guesses = torch.randint(0, BINS, (2, BATCH, TOKENS))
    return TokenBatch(prefix, tokens, guesses)


def log_softmax(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = np.asarray(scores, np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def scores(policy: ImpactTokensPolicy, batch: TokenBatch, tokens: Any) -> npt.NDArray[np.float32]:
    import torch

    layers = policy.model.tokens
    with torch.no_grad():
        kept = layers.read_prefix(batch.prefix.rows, batch.prefix.there)
        return np.asarray(layers.score_chunks(tokens, kept).numpy())


def expected(policy: ImpactTokensPolicy, batch: TokenBatch) -> tuple[float, float]:
    """The consistency loss and the cross-entropy, token by token."""
    told = log_softmax(scores(policy, batch, batch.tokens))
    guessed = log_softmax(scores(policy, batch, batch.guesses))
    divergence = entropy = 0.0
    for row in range(BATCH):
        for place in range(TOKENS):
            p, q = told[row, place], guessed[row, place]
            divergence += float((np.exp(p) * (p - q)).sum())
            entropy -= float(told[row, place, int(batch.tokens[row, place])])
    return divergence / (BATCH * TOKENS), entropy / (BATCH * TOKENS)


def objective(policy: ImpactTokensPolicy, consistency: float, omega: float) -> Any:
    import torch

    from vla_simd_ros.training.objectives import ActionTokens

    return ActionTokens(policy, torch.tensor([0.5, 2.0]), consistency=consistency, omega=omega)


def test_the_loss_is_consistency_and_omega_times_the_cross_entropy(
    policy: ImpactTokensPolicy, batch: TokenBatch
) -> None:
    loss, parts = objective(policy, 2.0, 0.3).loss(batch)
    divergence, entropy = expected(policy, batch)
    assert divergence > 0.05
    np.testing.assert_allclose(parts["consistency"].item(), divergence, rtol=1e-5)
    np.testing.assert_allclose(parts["cross_entropy"].item(), entropy, rtol=1e-5)
    np.testing.assert_allclose(loss.item(), 2 * divergence + 0.3 * entropy, rtol=1e-5)


def test_without_consistency_only_the_tokens_are_learned(
    policy: ImpactTokensPolicy, batch: TokenBatch
) -> None:
    loss, parts = objective(policy, 0.0, 2.0).loss(batch)
    assert list(parts) == ["cross_entropy"]
    np.testing.assert_allclose(loss.item(), 2 * expected(policy, batch)[1], rtol=1e-5)


def test_no_gradient_goes_through_the_target() -> None:
    import torch

    from vla_simd_ros.training.objectives import forward_kl

    target, guessed = (torch.randn(2, 3, 5, requires_grad=True) for _ in range(2))
    forward_kl(target, guessed).backward()
    assert target.grad is None
    # The gradient of the divergence in the scores: found probabilities less wanted ones.
    wanted = target.softmax(-1).detach()
    assert guessed.grad is not None
    torch.testing.assert_close(guessed.grad, (guessed.softmax(-1) - wanted).detach() / 6)


def test_consistency_alone_moves_only_what_is_read_behind_guesses(
    policy: ImpactTokensPolicy, batch: TokenBatch
) -> None:
    """With the tokens themselves as guesses there is nothing to learn."""
    from dataclasses import replace

    same = replace(batch, guesses=batch.tokens)
    loss, _ = objective(policy, 1.0, 0.0).loss(same)
    loss.backward()
    gradients = [p.grad for p in policy.model.tokens.parameters() if p.grad is not None]
    assert abs(loss.item()) < 1e-6
    assert all(float(gradient.abs().max()) < 1e-6 for gradient in gradients)


def test_a_few_steps_lower_the_loss(policy: ImpactTokensPolicy, batch: TokenBatch) -> None:
    import torch

    goal = objective(policy, 1.0, 1.0)
    optimizer = torch.optim.AdamW((p for p in policy.parameters() if p.requires_grad), lr=3e-3)
    losses = []
    for _ in range(25):
        loss, parts = goal.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), parts["cross_entropy"].item()))
    assert losses[-1][0] < 0.5 * losses[0][0]
    assert losses[-1][1] < 0.5 * losses[0][1]


def test_only_the_token_layers_are_trained(policy: ImpactTokensPolicy, batch: TokenBatch) -> None:
    objective(policy, 1.0, 1.0).loss(batch)[0].backward()
    moved = {name for name, p in policy.named_parameters() if p.grad is not None}
    assert moved == {name for name, _ in policy.named_parameters() if name.startswith("model.tokens.")}


def test_errors_are_those_of_the_best_tokens_in_deviations(
    policy: ImpactTokensPolicy, batch: TokenBatch
) -> None:
    import torch

    layers = policy.model.tokens
    layers.action_low.copy_(torch.tensor([-1.0, 0.0]))
    layers.action_high.copy_(torch.tensor([2.0, 6.0]))
    errors = objective(policy, 1.0, 1.0).errors(batch).numpy()
    best = scores(policy, batch, batch.guesses).argmax(-1).clip(max=BINS - 1)
    steps = np.abs(best - batch.tokens.numpy()).reshape(BATCH, 4, 2)
    np.testing.assert_allclose(errors, steps * np.array([3 / BINS / 0.5, 6 / BINS / 2.0]), rtol=1e-5)
