"""What a pass of a language model costs on this machine, by the number of tokens in it.

A pass reads all weights once, whatever its tokens: from the time of one token to that of 64 is much less than
64 times. How much less decides whether decoding several tokens in one pass, and checking them, is worth it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


class PassCostError(ValueError):
    """Costs that cannot be used; says why."""


@dataclass(frozen=True)
class PassCosts:
    """Milliseconds of a pass, by its number of tokens."""

    ms_by_tokens: Mapping[int, float]

    def __post_init__(self) -> None:
        if 1 not in self.ms_by_tokens:
            raise PassCostError(f"no cost of a pass of one token, among those of {sorted(self.ms_by_tokens)}")
        for tokens, ms in self.ms_by_tokens.items():
            if tokens < 1 or not 0 < ms < float("inf"):
                raise PassCostError(f"a pass of {tokens} tokens in {ms} ms, expected positive numbers")

    def ms(self, tokens: int) -> float:
        """The cost of a pass; between measured ones on a line, above them in proportion."""
        if tokens < 1:
            raise PassCostError(f"a pass of {tokens} tokens, expected at least one")
        known = sorted(self.ms_by_tokens)
        at = bisect_left(known, tokens)
        if at == len(known):
            return self.ms_by_tokens[known[-1]] * tokens / known[-1]
        if known[at] == tokens:
            return self.ms_by_tokens[tokens]
        low, high = known[at - 1], known[at]
        part = (tokens - low) / (high - low)
        return (1 - part) * self.ms_by_tokens[low] + part * self.ms_by_tokens[high]

    def break_even(self, tokens: int) -> float:
        """How many tokens a pass of ``tokens`` must fix to be as fast as one token after the other."""
        return self.ms(tokens) / self.ms(1)

    def best_block(self, fixed: Mapping[int, float]) -> int:
        """The block that decodes fastest where passes of ``block`` tokens fix ``fixed[block]`` on average; 1,
        which fixes one and needs no entry, where no larger one is faster."""
        ms_per_token = {1: self.ms(1)}
        for block, count in fixed.items():
            if count > 0:
                ms_per_token[block] = self.ms(block) / count
        return min(ms_per_token, key=lambda block: (ms_per_token[block], block))

    def to_json(self) -> dict[str, float]:
        """As JSON has them."""
        return {str(tokens): ms for tokens, ms in self.ms_by_tokens.items()}


def measure_passes(run: Callable[[int], float], sizes: Sequence[int], repeats: int) -> PassCosts:
    """The shortest of ``repeats`` times of each size; ``run(tokens)`` makes a pass and tells its time in ms.

    Sizes take turns, so that a machine that slows down meanwhile favours none.
    """
    if repeats < 1:
        raise PassCostError(f"{repeats} repeats, expected at least one")
    for tokens in sizes:
        run(tokens)
    shortest = {tokens: float("inf") for tokens in sizes}
    for repeat in range(repeats):
        for tokens in sizes if repeat % 2 == 0 else reversed(sizes):
            shortest[tokens] = min(shortest[tokens], run(tokens))
    return PassCosts(shortest)
