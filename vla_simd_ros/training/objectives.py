"""What a policy is trained to do: its loss on a batch, and its errors on episodes that it has not seen."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from vla_simd_ros.training.batches import Batch
from vla_simd_ros.training.impact import ImpactPolicy
from vla_simd_ros.training.impact_tokens import ImpactTokensPolicy
from vla_simd_ros.training.token_batches import TokenBatch

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
B_contra = TypeVar("B_contra", contravariant=True)


class Source(Protocol[B_co]):
    """Where batches come from."""

    rows: npt.NDArray[np.int64]

    def training(self, step: int) -> B_co:
        """The batch of a training step, which depends on the seed and ``step`` alone."""
        ...

    def batch(self, rows: npt.NDArray[np.int64]) -> B_co:
        """Some of ``rows``, as they were recorded."""
        ...


class Objective(Protocol[B_contra]):
    """A policy and what it is to learn."""

    @property
    def policy(self) -> nn.Module: ...

    def loss(self, batch: B_contra) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its parts by the log's names."""
        ...

    def errors(self, batch: B_contra) -> Tensor:
        """Errors of single actions, in deviations of the action."""
        ...


class ActionChunks:
    """Chunks of actions: IMPACT's own loss."""

    def __init__(self, policy: ImpactPolicy) -> None:
        self.policy = policy

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Objective`."""
        loss, parts = self.policy(batch.inputs, batch.actions, batch.is_pad)
        return loss, parts

    def errors(self, batch: Batch) -> Tensor:
        """Of the most likely actions."""
        return (self.policy.predict(batch.inputs) - batch.actions).abs()[~batch.is_pad]


class ActionTokens:
    """Tokens of a chunk from those before it, and the same ones from guesses.

    ``consistency`` times the forward KL divergence of the scores behind a batch's guesses from those behind
    its tokens, through which no gradient goes; and ``omega`` times the cross-entropy of the tokens.
    Both are means over all tokens. ``deviation`` [A] is that of the actions.
    """

    def __init__(
        self, policy: ImpactTokensPolicy, deviation: Tensor, *, consistency: float, omega: float
    ) -> None:
        self.policy = policy
        self._deviation = deviation
        self._consistency = consistency
        self._omega = omega

    def loss(self, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Objective`."""
        layers = self.policy.model.tokens
        kept = layers.read_prefix(batch.prefix.rows, batch.prefix.there)
        if batch.guesses is None or not self._consistency:
            entropy = cross_entropy(layers.score_chunks(batch.tokens, kept), batch.tokens)
            return self._omega * entropy, {"cross_entropy": entropy}
        both = torch.cat((batch.tokens, batch.guesses))
        told, guessed = layers.score_chunks(both, kept.repeated(2)).chunk(2)
        parts = {"cross_entropy": cross_entropy(told, batch.tokens), "consistency": forward_kl(told, guessed)}
        loss = self._consistency * parts["consistency"] + self._omega * parts["cross_entropy"]
        return loss, parts

    @torch.no_grad()
    def errors(self, batch: TokenBatch) -> Tensor:
        """Of the best tokens behind guesses, or behind the tokens where there are none."""
        layers = self.policy.model.tokens
        kept = layers.read_prefix(batch.prefix.rows, batch.prefix.there)
        given = batch.tokens if batch.guesses is None else batch.guesses
        best = layers.score_chunks(given, kept).argmax(-1).clamp(max=layers.config.action_bins - 1)
        shape = (len(best), -1, len(self._deviation))
        found, wanted = (layers.untokenize(tokens.reshape(shape)) for tokens in (best, batch.tokens))
        return (found - wanted).abs() / self._deviation


def cross_entropy(scores: Tensor, tokens: Tensor) -> Tensor:
    """Mean over ``tokens`` ``[B, n]`` of the logarithm of what the scores give them, negative."""
    return functional.cross_entropy(scores.float().flatten(0, 1), tokens.flatten())


def forward_kl(target: Tensor, scores: Tensor) -> Tensor:
    """Mean over tokens of the divergence KL(target || scores) of two distributions, both given as scores
    ``[B, n, vocabulary]``; ``target`` is a constant."""
    wanted = target.detach().float().log_softmax(-1)
    found = scores.float().log_softmax(-1)
    return (wanted.exp() * (wanted - found)).sum(-1).mean()
