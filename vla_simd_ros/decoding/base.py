"""What decoders work on, and what they tell about a query."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vla_simd_ros.graph.ir import Array

Clock = Callable[[], float]
"""Tells the time in seconds."""


class DecodingError(ValueError):
    """A model's scores, or a request, that no token follows from."""


class TokenModel(Protocol):
    """A model that scores what comes next, behind tokens that it keeps.

    The scores of a token depend on it and on those before it, to the last bit, and not on how many are
    scored at once.
    """

    @property
    def vocabulary(self) -> int:
        """Tokens there are, numbered from 0."""
        ...

    @property
    def room(self) -> int:
        """How many more tokens can be kept."""
        ...

    def scores(self, tokens: Sequence[int]) -> Array:
        """Score what follows each of ``tokens``, float32 [tokens, vocabulary]; they come after those kept.

        They are not kept themselves: the next call puts others in their place.
        """
        ...

    def keep(self, count: int) -> None:
        """Keep the first ``count`` of the tokens that were scored last."""
        ...


class Exit(str, enum.Enum):
    """Why decoding ended."""

    COMPLETE = "complete"
    """As many tokens as were asked for, each from those before it."""
    STOP_TOKEN = "stop_token"
    """A token that ends the text."""
    FIXED_POINT = "fixed_point"
    """The tokens give themselves again: another pass would change none."""
    CONFIDENT = "confident"
    """Every token of a pass was as sure as it had to be."""
    MAX_PASSES = "max_passes"
    """No more passes were allowed."""
    DEADLINE = "deadline"
    """No more time was left."""


@dataclass(frozen=True)
class Pass:
    """One run of the model.

    ``rows`` tokens were scored. ``start`` is the place of the first token that was being decoded, and
    ``state`` what all of them were after the pass; ``fixed`` of them have had their final value since this
    pass and not before. ``confidence`` is the smallest probability of a token of the state.
    """

    rows: int
    start: int
    state: tuple[int, ...]
    fixed: int
    confidence: float
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.fixed / self.seconds if self.seconds > 0 else math.inf


@dataclass(frozen=True)
class Decoded:
    """The tokens of a query and how they came about.

    ``exact``: they are those that decoding one after the other gives. ``converged``: neither passes nor time
    ran out before they were what the decoder was asked for.
    """

    tokens: tuple[int, ...]
    passes: tuple[Pass, ...]
    exit: Exit
    exact: bool

    @property
    def converged(self) -> bool:
        return self.exit not in (Exit.MAX_PASSES, Exit.DEADLINE)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.passes)

    @property
    def fixed_per_pass(self) -> float:
        """The mean of the tokens that a pass fixed."""
        return sum(one.fixed for one in self.passes) / len(self.passes)

    @property
    def mean_tokens_per_second(self) -> float:
        return len(self.tokens) / self.seconds if self.seconds > 0 else math.inf

    @property
    def min_tokens_per_second(self) -> float:
        """That of the pass that fixed the fewest for its time."""
        return min(one.tokens_per_second for one in self.passes)


@dataclass(frozen=True)
class Request:
    """What to decode: up to ``count`` tokens behind ``last``, the first token that the model does not keep
    yet.

    The first of ``stop`` ends the text and is its last token. ``deadline`` is a time on the decoder's clock,
    in seconds: no pass begins after it, but for the first.
    """

    last: int
    count: int
    stop: frozenset[int] = frozenset()
    deadline: float = math.inf


class Decoder(Protocol):
    """A way to decode."""

    @property
    def name(self) -> str: ...

    def decode(self, model: TokenModel, request: Request) -> Decoded:
        """Decode behind the tokens that ``model`` keeps.

        Raises :class:`DecodingError` for scores that are not finite and for a request that does not fit.
        """
        ...
