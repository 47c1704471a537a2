"""How the action tokens of a policy's queries are decoded, and what becomes of one that has not converged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from vla_simd_ros.decoding.base import Decoded, DecodingError, Exit
from vla_simd_ros.decoding.decoders import DECODERS, DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.decoding.parallel import INITIALIZATIONS
from vla_simd_ros.nodes.param import Param, ParameterError, checked

_MOST_TOKENS = 1_000_000
_LONGEST_MS = 1e6

DECODING_PARAMETERS = [
    Param(
        "decoder",
        DEFAULT_OPTIONS.decoder,
        "What decodes the action tokens of an autoregressive policy: one after the other, in blocks until "
        "they give themselves again, or until every token of a block is sure enough (sigma); auto: whichever "
        "of the first two is faster. Like the parameters below it can be changed at any time.",
        choices=DECODERS,
        live=True,
    ),
    Param(
        "sigma",
        DEFAULT_OPTIONS.sigma,
        "Decoder early_exit: the probability that every token of a block must have.",
        minimum=0.0,
        maximum=1.0,
        live=True,
    ),
    Param(
        "max_passes",
        DEFAULT_OPTIONS.max_passes,
        "Most passes of a query, after which it ends as it is; 0: no limit.",
        minimum=0,
        maximum=_MOST_TOKENS,
        live=True,
    ),
    Param(
        "block",
        DEFAULT_OPTIONS.block,
        "Tokens that are decoded together; 0: all of a chunk.",
        minimum=0,
        maximum=_MOST_TOKENS,
        live=True,
    ),
    Param(
        "initialization",
        DEFAULT_OPTIONS.initialization,
        "First guesses for a block: random tokens, or the last known one repeated.",
        choices=INITIALIZATIONS,
        live=True,
    ),
    Param("decoder_seed", DEFAULT_OPTIONS.decoder_seed, "Seed of random guesses.", minimum=0, live=True),
    Param(
        "query_deadline_ms",
        0.0,
        "Milliseconds from the start of a query, after which no pass of its decoder begins but the first; 0: "
        "no limit.",
        minimum=0.0,
        maximum=_LONGEST_MS,
        live=True,
    ),
    Param(
        "accept_unconverged",
        False,
        "Whether a chunk is published that ran out of passes or time before its tokens were what the "
        "decoder was asked for; it says so. If not, it is counted and reported, and the arm goes on with "
        "what it has.",
        live=True,
    ),
]

_OPTIONS = tuple(field.name for field in fields(DecoderOptions))
_ENDS = {
    Exit.MAX_PASSES: "no more passes were allowed (max_passes)",
    Exit.DEADLINE: "its deadline came (query_deadline_ms)",
}


def decoder_options(values: Mapping[str, Any]) -> DecoderOptions:
    """The decoder that the parameters describe."""
    return DecoderOptions(**{name: values[name] for name in _OPTIONS})


class NotConverged(Exception):
    """A query that ran out of passes or time, and is not to be used as it is."""


@dataclass(frozen=True)
class HowDecoded:
    """How the tokens of a chunk came about, and by what."""

    options: DecoderOptions
    decoded: Decoded


class QueryDecoding:
    """How one policy's queries are decoded.

    Settings are changed by the node's thread, and hold from the next query that is decoded.

    Args:
        policy: the loaded policy.
        values: the node's parameters.
        clock: that of deadlines, seconds.

    Raises:
        ParameterError: a parameter that this policy cannot be given.
    """

    def __init__(
        self, policy: Any, values: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._decodes = policy.action_tokens is not None
        self._type = policy.spec.type
        self._clock = clock
        self._values: Mapping[str, Any] = checked(DECODING_PARAMETERS, {})
        self.take(self.changed(values))
        self._applied = DEFAULT_OPTIONS
        self.unconverged = 0
        """Queries that ran out of passes or time, published or not."""

    def changed(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The parameters with some changed, for :meth:`take`; other names are none of them. Raises
        ParameterError where these cannot be."""
        values = {**self._values, **{name: value for name, value in changes.items() if name in self._values}}
        if not self._decodes:
            for param in DECODING_PARAMETERS:
                if (value := values[param.name]) != param.default:
                    raise ParameterError(
                        f"{param.name}: got {value!r}, but the policy '{self._type}' decodes no tokens"
                    )
        try:
            decoder_options(values).make(1, self._clock)
        except DecodingError as error:
            raise ParameterError(f"decoder: got '{values['decoder']}': {error}") from None
        return values

    def take(self, values: Mapping[str, Any]) -> None:
        """Let :meth:`changed` parameters hold."""
        self._values = values

    def given(self) -> dict[str, Any]:
        """What a query that starts now is given."""
        limit_ms = self._values["query_deadline_ms"]
        return {"deadline": self._clock() + limit_ms * 1e-3} if limit_ms else {}

    def apply(self, policy: Any) -> None:
        """Let ``policy`` decode as it is to now; in the thread that decodes."""
        if not self._decodes:
            return
        self._applied = decoder_options(self._values)
        if policy.decoder != self._applied:
            policy.set_decoder(**asdict(self._applied))

    def judge(self, decoded: Decoded | None) -> HowDecoded | None:
        """How a query was decoded; None where it was not. Raises NotConverged where it is not to be used."""
        if decoded is None:
            return None
        if not decoded.converged:
            self.unconverged += 1
            if not self._values["accept_unconverged"]:
                passes, end = len(decoded.passes), _ENDS[decoded.exit]
                raise NotConverged(
                    f"a query had not converged after {passes} passes, when {end}: its chunk is not "
                    "published (accept_unconverged is false)"
                )
        return HowDecoded(self._applied, decoded)
