"""How fast several policies and decoders answer the same observations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from vla_simd_ros.decoding.base import Decoded
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.inference import Query
from vla_simd_ros.observation import Observation

_PROGRESS_S = 4.0


class Decoding(Protocol):
    """What is used of a :class:`vla_simd_ros.inference.Policy` that spells its actions in tokens."""

    @property
    def set_decoder(self) -> Callable[..., None]: ...

    def set_instruction(self, text: str) -> float: ...

    def query(self, observation: Observation) -> Query: ...

    def warm_up(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Asked:
    """An observation, and what the policy was to do then."""

    instruction: str
    observation: Observation


@dataclass(frozen=True)
class Speed:
    """Of one condition, observation by observation: passes and tokens are always the same, of the times the
    medians of all repeats are taken."""

    passes: tuple[int, ...]
    tokens: tuple[int, ...]
    decoding_s: tuple[float, ...]
    query_ms: tuple[float, ...]

    @property
    def mean_passes(self) -> float:
        """Passes of a query."""
        return statistics.fmean(self.passes)

    @property
    def fixed_per_pass(self) -> float:
        """Tokens that a pass fixes."""
        return sum(self.tokens) / sum(self.passes)

    @property
    def tokens_per_second(self) -> tuple[float, float, float]:
        """Of the slowest query, of all together, and of the fastest one."""
        rates = [count / seconds for count, seconds in zip(self.tokens, self.decoding_s, strict=True)]
        return min(rates), sum(self.tokens) / sum(self.decoding_s), max(rates)

    @property
    def mean_query_ms(self) -> float:
        """From the observation to the actions, everything included."""
        return statistics.fmean(self.query_ms)


def measure_speeds(
    conditions: Sequence[tuple[Decoding, DecoderOptions]],
    asked: Sequence[Asked],
    repeats: int,
    say: Callable[[str], None],
) -> list[Speed]:
    """Let every condition answer each observation ``repeats`` times, one after the other, the order turned
    round from repeat to repeat. What is found is in the order of the instructions."""
    for policy, decoder in conditions:
        policy.set_decoder(**asdict(decoder))
        policy.warm_up()
    last_said = time.monotonic()
    found: list[list[_Taken]] = [[] for _ in conditions]
    # One instruction after the other: to read another one takes longer than a query.
    told = ""
    for number, one in enumerate(sorted(asked, key=lambda each: each.instruction)):
        if one.instruction != told:
            told = one.instruction
            for policy in {id(policy): policy for policy, _ in conditions}.values():
                policy.set_instruction(told)
        taken = [_Taken() for _ in conditions]
        for repeat in range(repeats):
            places = list(range(len(conditions)))
            for place in places if repeat % 2 == 0 else reversed(places):
                taken[place].add(_answer(*conditions[place], one))
        for each, new in zip(found, taken, strict=True):
            each.append(new)
        if time.monotonic() - last_said > _PROGRESS_S:
            last_said = time.monotonic()
            say(f"measured {number + 1} of {len(asked)} observations")
    return [_speed(each) for each in found]


class _Taken:
    """The answers of one condition to one observation."""

    def __init__(self) -> None:
        self._answers: list[tuple[Decoded, float]] = []

    def add(self, answer: Query) -> None:
        assert answer.decoded is not None
        self._answers.append((answer.decoded, answer.timing.total_ms))

    @property
    def decoded(self) -> Decoded:
        return self._answers[0][0]

    @property
    def decoding_s(self) -> float:
        return statistics.median(decoded.seconds for decoded, _ in self._answers)

    @property
    def query_ms(self) -> float:
        return statistics.median(ms for _, ms in self._answers)


def _answer(policy: Decoding, decoder: DecoderOptions, one: Asked) -> Query:
    policy.set_decoder(**asdict(decoder))
    return policy.query(one.observation)


def _speed(taken: Sequence[_Taken]) -> Speed:
    return Speed(
        passes=tuple(len(each.decoded.passes) for each in taken),
        tokens=tuple(len(each.decoded.tokens) for each in taken),
        decoding_s=tuple(each.decoding_s for each in taken),
        query_ms=tuple(each.query_ms for each in taken),
    )
