"""Decoding several tokens at once: guess a block of them, and let the model correct all in every pass.

What a pass says of a token is right as far as the tokens before it were. The first of a block always is, so
every pass makes at least one token certain; those are kept and not computed again. When all tokens are what
the pass before it was given, the state is a fixed point: nothing would change any more, and each token is the
one that decoding one after the other gives. A block of one token is decoding one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vla_simd_ros.decoding.base import Clock, Decoded, DecodingError, Exit, Pass, Request, TokenModel
from vla_simd_ros.graph.ir import Array

INITIALIZATIONS = ("random", "repeat")


@dataclass(frozen=True)
class ParallelDecoder:
    """Blocks of ``block`` tokens, each until its fixed point.

    ``sigma``, above 0: or until the smallest of the tokens' probabilities is at least that. ``max_passes``,
    above 0: of all blocks together. The first guesses are ``initialization``: "random" tokens from a
    generator with ``seed``, anew in each query, or "repeat" of the last token known. ``clock`` tells seconds.
    """

    name: str = "jacobi"
    block: int = 16
    sigma: float = 0.0
    max_passes: int = 0
    initialization: str = "random"
    seed: int = 0
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        if self.block < 1:
            raise DecodingError(f"block is {self.block}, expected 1 or more tokens")
        if not 0 <= self.sigma <= 1:
            raise DecodingError(f"sigma is {self.sigma}, expected a probability, or 0 for none")
        if self.max_passes < 0:
            raise DecodingError(f"max_passes is {self.max_passes}, expected 1 or more, or 0 for no limit")
        if self.initialization not in INITIALIZATIONS:
            known = ", ".join(INITIALIZATIONS)
            raise DecodingError(f"initialization '{self.initialization}' is unknown, expected one of {known}")

    def decode(self, model: TokenModel, request: Request) -> Decoded:
        """See :class:`vla_simd_ros.decoding.base.Decoder`."""
        if request.count < 1:
            raise DecodingError(f"{request.count} tokens to decode, expected 1 or more")
        if request.count > model.room:
            raise DecodingError(
                f"{request.count} tokens to decode, expected no more than the {model.room} there is room for"
            )
        run = _Run(self, model, request)
        while True:
            exit_ = run.block()
            if run.finished(exit_):
                return run.result(exit_)


class _Run:
    """One query while it is decoded."""

    def __init__(self, decoder: ParallelDecoder, model: TokenModel, request: Request) -> None:
        self._decoder = decoder
        self._model = model
        self._request = request
        self._rng = np.random.default_rng(decoder.seed)
        self._tokens: list[int] = []
        self._passes: list[Pass] = []
        self._exact = True
        # What the model does not keep yet: the last certain token, and those taken after it that are not.
        self._pending = [request.last]

    def block(self) -> Exit:
        """Decode the next block, and tell why that ended."""
        size = min(self._decoder.block, self._request.count - len(self._tokens))
        block = _Block(len(self._tokens), self._first_guess(size))
        while not (limit := self._limit(len(self._passes) + len(block.passes))):
            self._pass(block)
            if block.stopped(self._request.stop):
                return self._take(block, Exit.STOP_TOKEN)
            if block.known == size:
                return self._take(block, Exit.COMPLETE if self._decoder.block == 1 else Exit.FIXED_POINT)
            if 0 < self._decoder.sigma <= block.passes[-1].confidence:
                return self._take(block, Exit.CONFIDENT)
        return self._take(block, limit)

    def finished(self, exit_: Exit) -> bool:
        """Whether a block that ended so is the last one."""
        if exit_ in (Exit.STOP_TOKEN, Exit.MAX_PASSES, Exit.DEADLINE):
            return True
        return len(self._tokens) == self._request.count or self._tokens[-1] in self._request.stop

    def result(self, exit_: Exit) -> Decoded:
        return Decoded(tuple(self._tokens), tuple(self._passes), exit_, self._exact)

    def _pass(self, block: _Block) -> None:
        """Let the model correct what is not known of a block."""
        began = self._decoder.clock()
        guessed = block.state[block.known : -1]
        rows = [*self._pending, *guessed]
        tokens, sure = _best(self._model.scores(rows)[len(self._pending) - 1 :], len(self._tokens))
        certain = 1
        while certain <= len(guessed) and guessed[certain - 1] == tokens[certain - 1]:
            certain += 1
        # What the certain tokens were computed from is kept; the last of them is not among it yet.
        self._model.keep(len(self._pending) + certain - 1)
        self._pending = [tokens[certain - 1]]
        block.correct(certain, tokens, sure)
        counted = block.end(self._request.stop)
        lowest, seconds = min(block.sure[:counted]), self._decoder.clock() - began
        block.passes.append(Pass(len(rows), block.start, tuple(block.state), 0, lowest, seconds))

    def _take(self, block: _Block, exit_: Exit) -> Exit:
        """Take the tokens of a block as it is; guesses that no pass has corrected are none."""
        if not block.passes:
            return exit_
        state = block.state[: block.end(self._request.stop)]
        self._tokens += state
        self._passes += _with_fixed(block.passes, state)
        if block.known < len(state):
            self._exact = False
            self._pending += state[block.known :]
        return exit_

    def _limit(self, done: int) -> Exit | None:
        """What forbids another pass after ``done`` of them. The first one of a query is never forbidden."""
        if done == 0:
            return None
        if 0 < self._decoder.max_passes <= done:
            return Exit.MAX_PASSES
        return Exit.DEADLINE if self._decoder.clock() > self._request.deadline else None

    def _first_guess(self, size: int) -> list[int]:
        if self._decoder.initialization == "repeat" or size == 1:  # the guess for the last one is never read
            return [self._pending[-1]] * size
        guess: list[int] = self._rng.integers(0, self._model.vocabulary, size).tolist()
        return guess


@dataclass
class _Block:
    """Tokens that are decoded together, from place ``start`` on; the first ``known`` of ``state`` are
    certain, and ``sure`` has their probabilities."""

    start: int
    state: list[int]
    known: int = 0
    sure: list[float] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)

    def correct(self, certain: int, tokens: Sequence[int], sure: Sequence[float]) -> None:
        """Replace what is not known yet by what a pass made of it; so many more are certain."""
        self.state[self.known :] = tokens
        self.sure[self.known :] = sure
        self.known += certain

    def end(self, stop: frozenset[int]) -> int:
        """How many tokens there are up to the first that ends the text."""
        return next((i + 1 for i, token in enumerate(self.state) if token in stop), len(self.state))

    def stopped(self, stop: frozenset[int]) -> bool:
        """Whether a token that ends the text is certain."""
        return any(token in stop for token in self.state[: self.known])


def _best(scores: Array, place: int) -> tuple[list[int], list[float]]:
    """The token of the largest score of each row, the first of equal ones, and its probability."""
    largest = scores.max(axis=1)
    with np.errstate(invalid="ignore"):
        total = np.exp(scores - largest[:, None]).sum(axis=1, dtype=np.float64)
    finite = np.isfinite(largest) & np.isfinite(total)
    if not finite.all():
        row = int(finite.argmin())
        raise DecodingError(f"the scores of token {place + row} are not finite, expected numbers")
    return scores.argmax(axis=1).tolist(), (1 / total).tolist()


def _with_fixed(passes: Sequence[Pass], final: Sequence[int]) -> list[Pass]:
    """The passes of a block, each with the number of tokens that it gave their final value."""
    if len(passes) == 1:
        return [replace(passes[0], fixed=len(final))]
    settled = [True] * len(final)
    counts = []
    for one in reversed(passes):
        settled = [
            before and now == then for before, now, then in zip(settled, one.state, final, strict=False)
        ]
        counts.append(sum(settled))
    counts.append(0)
    counts.reverse()
    return [
        replace(one, fixed=after - before)
        for one, before, after in zip(passes, counts[:-1], counts[1:], strict=True)
    ]
