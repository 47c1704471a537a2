"""From the states that a query program leaves to a chunk of actions, token by token."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.decoding.base import Clock, Decoded, DecodingError, Request
from vla_simd_ros.decoding.cached_model import CachedModel, rows_for, sizes_for
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.executors.base import InputError, Runnable
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.policies.base import ActionTokens, PolicySpec, PromptedTokens

_DIRECT = "decodes no tokens, it computes its actions directly"


@dataclass(frozen=True, eq=False)
class TokenPlan:
    """What the tokens of one query are decoded behind: ``prefix_rows`` rows of the states.

    ``origin`` float32 [action_dim] is added to every row of the chunk, None: nothing. ``deadline`` is a time
    on the decoder's clock, in seconds.
    """

    prefix_rows: int
    origin: Array | None = None
    deadline: float = math.inf


class ActionDecoder:
    """Plans and decodes the chunks of one policy.

    ``passes`` has the step programs for runs of several rows; those for one row come with each query. Raises
    DecodingError for a decoder that does not exist.
    """

    def __init__(
        self,
        spec: PolicySpec,
        tokens: ActionTokens,
        passes: Callable[[int], Runnable],
        options: DecoderOptions,
        clock: Clock = time.monotonic,
    ) -> None:
        self.tokens = tokens
        self.options = options
        self._spec = spec
        # Found out once: to ask for a protocol takes a tenth of what the tokens of a small policy do.
        self._prompted = tokens if isinstance(tokens, PromptedTokens) else None
        self._passes = passes
        self._decoder = options.make(tokens.count, clock)
        self._block = 1 if options.decoder == "autoregressive" else options.block or tokens.count
        self._sizes = sizes_for(self._block)

    def prompted(
        self, values: Mapping[str, Array], text: str, instruction: int | None
    ) -> tuple[Mapping[str, Array], int | None]:
        """What the query program is given for an observation's ``values``, and how many tokens the
        instruction ``text`` has in this query, of up to ``instruction``."""
        if instruction is not None and self._prompted is not None:
            return self._prompted.prompt(text, instruction, values)
        return values, instruction

    def plan(
        self, values: Mapping[str, Array], instruction: int | None, deadline: float = math.inf
    ) -> TokenPlan:
        """For a query with the inputs ``values``, the instruction having so many tokens. Raises InputError
        for a deadline that is none."""
        if math.isnan(deadline):
            raise InputError(f"deadline is {deadline}, expected a time in seconds")
        origin = values["state"][-1] if self._spec.relative_actions else None
        return TokenPlan(self.tokens.prefix_rows(instruction), origin, deadline)

    def run(self, executable: Runnable, plan: TokenPlan) -> tuple[Array, Decoded]:
        """Decode a chunk, the query program having run on ``executable``: the actions, and how they arose.

        Raises DecodingError for scores that are not finite and for tokens that spell no actions.
        """
        tokens = self.tokens
        request = Request(tokens.first, tokens.count, tokens.stop, plan.deadline)
        decoded = self._decoder.decode(self._model(executable, plan), request)
        return self._chunk(decoded.tokens, plan), decoded

    def iterate(self, executable: Runnable, plan: TokenPlan) -> Iterator[dict[str, Array]]:
        """Decode one token after the other, the query program having run on ``executable``; what the step
        program gives for each, and with the last of them "action" too. Raises DecodingError, see :meth:`run`.
        """
        spelled = self.tokens
        found: list[int] = []
        ended = False
        while not ended:
            outputs = _read(executable, plan, len(found), found[-1] if found else spelled.first)
            scores = outputs["scores"][0]
            if not np.isfinite(scores.max()):
                raise DecodingError(f"the scores of token {len(found)} are not finite, expected numbers")
            found.append(int(scores.argmax()))
            ended = len(found) == spelled.count or found[-1] in spelled.stop
            yield {**outputs, "action": self._chunk(found, plan)} if ended else outputs

    def read(
        self, executable: Runnable, plan: TokenPlan, tokens: Sequence[int]
    ) -> Iterator[dict[str, Array]]:
        """What the step program gives behind the prefix, and then for each of ``tokens``, whatever it would
        have decoded."""
        for place, token in enumerate((self.tokens.first, *tokens)):
            yield _read(executable, plan, place, token)

    def warm_up(self, executable: Runnable, plan: TokenPlan) -> None:
        """Run every pass that a query can need once, then decode; nothing is made of the tokens."""
        tokens = self.tokens
        model = self._model(executable, plan)
        # Behind a block that was taken as it was, its tokens are computed once more with the next ones.
        largest = rows_for(min(2 * self._block - 1, tokens.count), self._sizes)
        # The largest first: the others fit into its memory.
        for rows in self._sizes[self._sizes.index(largest) :: -1]:
            model.scores([tokens.first] * min(rows, model.room))
        self._decoder.decode(model, Request(tokens.first, tokens.count, tokens.stop))

    def _chunk(self, tokens: Sequence[int], plan: TokenPlan) -> Array:
        """The actions that tokens spell."""
        actions = self.tokens.actions(tokens)
        return np.asarray(actions if plan.origin is None else actions + plan.origin, np.float32)

    def _model(self, executable: Runnable, plan: TokenPlan) -> CachedModel:
        def load(rows: int) -> Runnable:
            return executable if rows == 1 else self._passes(rows)

        context = plan.prefix_rows + self.tokens.count
        model = CachedModel(load, context, self.tokens.vocabulary, self._sizes)
        model.go_on(plan.prefix_rows)
        return model


def _read(executable: Runnable, plan: TokenPlan, place: int, token: int) -> dict[str, Array]:
    """Run the step program for one token."""
    positions = np.array([plan.prefix_rows + place], np.int32)
    steps = {"step_ids": np.array([token], np.int32), "step_positions": positions}
    return executable.run(Lifetime.STEP, steps)


def make_action_decoder(
    spec: PolicySpec,
    tokens: ActionTokens | None,
    passes: Callable[[int], Runnable],
    options: DecoderOptions,
) -> ActionDecoder | None:
    """What decodes the actions of a policy; None for one without tokens. Raises InputError for options that
    are no use, DecodingError for a decoder that does not exist."""
    if tokens is not None:
        return ActionDecoder(spec, tokens, passes, options)
    for name, value in options.changed.items():
        raise InputError(f"{name} is {value}, but the policy '{spec.type}' {_DIRECT}")
    return None


def no_tokens(policy: str) -> InputError:
    """The error of a policy that was asked to decode, but computes its actions directly."""
    return InputError(f"the policy '{policy}' {_DIRECT}")
