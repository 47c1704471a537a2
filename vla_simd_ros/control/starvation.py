"""How often rows run out before the next chunk arrives, from a sample of latencies: exact reasoning.

Model: latencies are independent draws from the sample; queries are sequential and start on control ticks
(see :mod:`vla_simd_ros.control.schedule`). Query k is captured and started at step t_k, its chunk arrives at
a_k = t_k + d_k, and t_{k+1} = t_k + i_k with i_k = max(s, busy steps). Rows of chunk k last

- time-aligned: for the steps t_k to t_k + H - 1, so the steps from max(a_k, t_k + H) to a_{k+1} - 1 starve:
  (i_k + d_{k+1} - max(H, d_k))+ of them;
- lagged: for the steps a_k to a_k + H - 1, so (i_k - d_k + d_{k+1} - H)+ steps starve.

In both, a chunk leaves its r_k spent rows behind (i_k, or i_k - d_k), and d_{k+1} is independent of it:

    P(starvation per chunk) = sum_k w_k P(r_k + d > max(H, d_k) or H)

A renewal argument gives the long-run rates: chunks come every E[i] steps. Consecutive events share a
latency, so the probability of none for a whole hour follows the Markov chain of (step, r) over the control
steps, with the mass that starves removed. Without variance it is certain or impossible, and C1 (d <= H) and
C2 (2 d <= H) say which.

The i.i.d. assumption is the optimist's for a machine that has slow phases: the same number of starvations
then comes in bursts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.schedule import QuerySteps
from vla_simd_ros.control.timeline import Mode

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95

_SECONDS_PER_HOUR = 3600.0
_RESAMPLES = 1000
_SEED = 0
# The hazard has settled when it changes by less than this, relatively, from one stretch to the next.
_SETTLED = 1e-11


@dataclass(frozen=True)
class Starvation:
    """What a latency sample says about starvation in one mode.

    ``low`` and ``high`` bound ``per_hour`` with 95 % confidence, given that the sample is all that is known
    of the latencies. ``high`` is never 0: it counts the latencies longer than all of n that n measurements
    cannot exclude. ``starved_share`` is the share of control steps without a row; ``stale_rows`` are dropped
    per chunk, because their time had passed on arrival.
    """

    mode: Mode
    per_chunk: float
    per_hour: float
    low: float
    high: float
    within_hour: float
    starved_share: float
    stale_rows: float


def starvation(queries: QuerySteps, mode: Mode) -> Starvation:
    """Rates and probabilities of starvation in the long run."""
    per_chunk = float(_per_chunk(queries, mode, queries.weight[None])[0])
    low, high = _bounds(queries, mode)
    hour = round(_SECONDS_PER_HOUR * queries.schedule.rate)
    stale = np.minimum(queries.delay, queries.schedule.window) if mode is Mode.TIME_ALIGNED else 0.0
    return Starvation(
        mode=mode,
        per_chunk=per_chunk,
        per_hour=per_chunk * queries.chunks_per_hour,
        low=low,
        high=high,
        within_hour=1.0 - survival(queries, mode, hour),
        starved_share=_starved_per_chunk(queries, mode) / queries.mean_advance,
        stale_rows=float(np.sum(queries.weight * stale)),
    )


def _slack(queries: QuerySteps, mode: Mode) -> npt.NDArray[np.int64]:
    """For each query: the longest delay of the next one that leaves no step without a row."""
    return queries.reach(mode) - queries.carried(mode)


def _per_chunk(queries: QuerySteps, mode: Mode, weights: Floats) -> Floats:
    """Probability of starvation after a chunk, for each row of ``weights`` of the queries."""
    first_late = np.searchsorted(queries.delay, _slack(queries, mode), side="right")
    tail = np.zeros((len(weights), len(queries.delay) + 1))
    tail[:, :-1] = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.sum(weights * tail[:, first_late], axis=1))


def _starved_per_chunk(queries: QuerySteps, mode: Mode) -> float:
    """Expected control steps without a row from one arrival to the next."""
    missing = queries.delay[None, :] - _slack(queries, mode)[:, None]
    return float(queries.weight @ np.maximum(missing, 0) @ queries.weight)


def _bounds(queries: QuerySteps, mode: Mode) -> tuple[float, float]:
    """Bounds of the starvations per hour: bootstrap of the sample, and what the sample cannot exclude."""
    n = queries.samples
    drawn = np.random.default_rng(_SEED).multinomial(n, queries.weight, _RESAMPLES) / n
    rates = _per_chunk(queries, mode, drawn) / (drawn @ queries.advance)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(rates, (tail, 1.0 - tail)) * _SECONDS_PER_HOUR * queries.schedule.rate
    return float(low), max(float(high), unseen_per_hour(queries, mode))


def unseen_per_hour(queries: QuerySteps, mode: Mode) -> float:
    """Upper bound, at 95 %, of the starvations per hour by latencies longer than all measured ones.

    That none of n independent latencies was that long says that their probability is below
    1 - 0.05^(1/n), about 3/n. One of them can starve the chunk before it, and in time-aligned execution
    the one after it too.
    """
    probability = -math.expm1(math.log1p(-CONFIDENCE) / queries.samples)
    victims = 2 if mode is Mode.TIME_ALIGNED else 1
    return min(1.0, victims * probability) * queries.chunks_per_hour


def survival(queries: QuerySteps, mode: Mode, steps: int) -> float:
    """Probability that the control steps before ``steps`` all find a row, once the first chunk is there.

    Step 0 is the start of the first query; the wait for its chunk does not count. Exact: after a few
    windows the hazard of a stretch of steps is the same from stretch to stretch, and is taken as such from
    there on.
    """
    chain = _Chain(queries, mode)
    stretch = chain.stretch()
    alive, before, done = 1.0, math.nan, 0
    while done < steps:
        lost = chain.run(stretch)
        if done + stretch > steps:
            return max(0.0, alive - float(lost[: steps - done].sum()))
        hazard = float(lost.sum()) / alive
        alive -= float(lost.sum())
        done += stretch
        if alive <= 0.0 or hazard >= 1.0:
            return 0.0
        if abs(hazard - before) <= _SETTLED * hazard:
            whole, rest = divmod(steps - done, stretch)
            partial = float(lost[:rest].sum()) / (float(lost.sum()) + alive)
            return alive * math.exp(whole * math.log1p(-hazard)) * (1.0 - partial)
        before = hazard
    return alive


class _Chain:
    """Mass over (step of a query's start, rows that the chunk before has spent), starved mass removed."""

    def __init__(self, queries: QuerySteps, mode: Mode) -> None:
        self._window = queries.schedule.window
        self._advance = queries.advance
        self._weight = queries.weight
        self._carried, self._state = np.unique(queries.carried(mode), return_inverse=True)
        # Each query's delay leaves alive the states up to this one; each state lets die this share.
        self._alive = np.searchsorted(self._carried, self._window - queries.delay, side="right")
        tail = np.append(np.cumsum(queries.weight[::-1])[::-1], 0.0)
        self._dying = tail[np.searchsorted(queries.delay, self._window - self._carried, side="right")]
        # The chunk that starves began at the step minus `carried`, and ends a window later: where it has
        # spent all rows before the next query starts, whatever comes.
        self._until_loss = np.maximum(self._window - self._carried, 0)
        began = self._advance - queries.carried(mode)
        self._doomed = queries.carried(mode) > self._window
        self._end_of_doomed = (began + self._window)[self._doomed]
        ends = (self._advance.max(), self._until_loss.max(), queries.delay.max(), began.max() + self._window)
        self._length = int(max(ends)) + 1
        self._mass = np.zeros((self._length, len(self._carried)))
        self._loss = np.zeros(self._length)
        self._step = 0
        # A first chunk that arrives after its own end starves on arrival.
        late = queries.reach(mode) > self._window
        np.add.at(self._loss, queries.delay[late], self._weight[late])
        self._start_queries(np.where(late, 0.0, self._weight))

    def stretch(self) -> int:
        """Steps after which the hazard can repeat itself: several windows, in whole periods."""
        shortest = int(self._advance.min())
        period = math.gcd(*(int(i) for i in self._advance if i + shortest <= 2 * self._window), shortest)
        return period * -(-4 * (self._window + shortest) // period)

    def run(self, steps: int) -> Floats:
        """The mass lost at each of the next steps."""
        lost = np.empty(steps)
        for i in range(steps):
            slot = self._step % self._length
            here = self._mass[slot].copy()
            self._mass[slot] = 0.0
            if here.any():
                self._move(here)
            lost[i], self._loss[slot] = self._loss[slot], 0.0
            self._step += 1
        return lost

    def _move(self, here: Floats) -> None:
        up_to = np.append(0.0, np.cumsum(here))
        self._start_queries(self._weight * up_to[self._alive])
        np.add.at(self._loss, (self._step + self._until_loss) % self._length, here * self._dying)

    def _start_queries(self, mass: Floats) -> None:
        """At this step, each query with its mass."""
        doomed = self._doomed
        np.add.at(self._loss, (self._step + self._end_of_doomed) % self._length, mass[doomed])
        target = (self._step + self._advance[~doomed]) % self._length
        np.add.at(self._mass, (target, self._state[~doomed]), mass[~doomed])
