"""A policy as two stages that frames pass through: cut in two, with a cut that moves, or whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from vla_simd_ros.executors.base import InputError
from vla_simd_ros.hybrid.placement import Placement
from vla_simd_ros.hybrid.split_executor import SplitExecutable
from vla_simd_ros.inference import Policy, Query, Timing
from vla_simd_ros.observation import Observation
from vla_simd_ros.request import Request

_MS = 1e3

PrefixEnded = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class Answer:
    """A query's result, the blocks of the prefix that it was computed with (0: it was not cut), and the
    seconds of either stage without what lies between."""

    query: Query
    blocks: int
    prefix_s: float
    suffix_s: float


class TwoStagePolicy(Protocol):
    """What a node runs frames through; each stage in one thread at a time, the rest while neither runs."""

    policy: Policy
    """The policy itself: its instruction, what it takes and gives."""

    def prefix(self, observation: Observation, **given: Any) -> Any:
        """The first stage: what :meth:`vla_simd_ros.inference.Policy.query` takes. Raises InputError."""

    def suffix(self, crossed: Any) -> Answer:
        """The second stage, from what the first returned."""

    def warm_up(self) -> None:
        """Run everything once."""

    def close(self) -> None:
        """Free the weights; the policy cannot be used afterwards."""


@dataclass(frozen=True, eq=False)
class _Crossed:
    """A frame between the stages; times of the performance counter."""

    request: Request
    executable: SplitExecutable
    blocks: int
    began: float
    prepared: float
    ended: float


class HybridPolicy:
    """A policy on a SplitExecutor.

    Args:
        policy: loaded with a SplitExecutor of the blocks that ``cuts`` names.
        cuts: the last block of the prefix, by the number of its blocks.
        blocks: says, when a frame begins, how many blocks its prefix has; it keeps these. Where the cut
            moves to a place that is not ready for the instruction, each stage readies its side beside a frame
            or two that are cut as the last one was.
        places: where the threads of the prefix and the suffix run.
        prefix_ended: told, before the next frame begins, the blocks of every prefix and its seconds.
    """

    def __init__(
        self,
        policy: Policy,
        cuts: Mapping[int, str],
        blocks: Callable[[], int],
        places: tuple[Placement, Placement],
        prefix_ended: PrefixEnded = lambda blocks, took_s: None,
    ) -> None:
        self.policy = policy
        self._blocks = blocks
        self._cuts = dict(cuts)
        self._places = places
        self._prefix_ended = prefix_ended
        self._last: int | None = None
        self._wanted: tuple[SplitExecutable, int] | None = None

    def prefix(self, observation: Observation, **given: Any) -> _Crossed:
        """The first stage, on the first executor."""
        self._places[0].take()
        executable = self.policy.executable
        assert isinstance(executable, SplitExecutable)
        self._last = blocks = self._next_blocks(executable)
        began = time.perf_counter()
        request = self.policy.request(observation, **given)
        prepared = time.perf_counter()
        values = executable.prefix(self._cuts[blocks], request.values)
        crossed = replace(request, values=values)
        ended = time.perf_counter()
        self._prefix_ended(blocks, ended - prepared)
        return _Crossed(crossed, executable, blocks, began, prepared, ended)

    def suffix(self, crossed: _Crossed) -> Answer:
        """The second stage, and all solver or decoding steps, on the second executor, which keeps the keys
        and values that tokens are decoded behind. Raises DecodingError."""
        self._places[1].take()
        after = self._cuts[crossed.blocks]
        self._ready_suffix(crossed.executable, after)
        began = time.perf_counter()
        values = crossed.executable.suffix(after, crossed.request.values)
        queried = time.perf_counter()
        result, decoded = self.policy.actions(crossed.executable.steps(after), crossed.request, values)
        solved = time.perf_counter() if crossed.request.goes_on else queried
        actions = np.asarray(result, np.float32)
        ended = time.perf_counter()
        prefix_s = crossed.ended - crossed.prepared
        timing = Timing(
            preprocess_ms=(crossed.prepared - crossed.began) * _MS,
            query_ms=(prefix_s + queried - began) * _MS,
            handover_ms=(began - crossed.ended) * _MS,
            step_ms=(solved - queried) * _MS,
            postprocess_ms=(ended - solved) * _MS,
            total_ms=(ended - crossed.began) * _MS,
        )
        return Answer(Query(actions, timing, decoded), crossed.blocks, prefix_s, solved - began)

    def _next_blocks(self, executable: SplitExecutable) -> int:
        """The blocks of the next frame's prefix, for which the first side is ready then."""
        wanted = self._blocks()
        executable.ready_prefix(self._cuts[wanted])
        self._wanted = executable, wanted
        if self._last is None or executable.is_ready(self._cuts[wanted]):
            return wanted
        return self._last if executable.is_ready(self._cuts[self._last]) else wanted

    def _ready_suffix(self, executable: SplitExecutable, after: str) -> None:
        """Ready the second side for this frame, and for the cut that is wanted next."""
        executable.ready_suffix(after)
        if self._wanted is not None and self._wanted[0] is executable:
            executable.ready_suffix(self._cuts[self._wanted[1]])

    def warm_up(self) -> None:
        """Run everything once, and every cut where an instruction is set."""
        self.policy.warm_up()
        try:
            executable = self.policy.executable
        except InputError:
            return
        assert isinstance(executable, SplitExecutable)
        request = self.policy.request(self.policy.blank_observation())
        for after in self._cuts.values():
            executable.suffix(after, executable.prefix(after, request.values))
            if request.plan is not None:
                self.policy.solve(executable.steps(after), request.plan, 1)

    def close(self) -> None:
        """Free the weights; the policy cannot be used afterwards."""
        self._wanted = None
        self.policy.close()


class WholePolicy:
    """A policy that is not cut: the first stage only hands frames on, so that the newest one is taken."""

    def __init__(self, policy: Policy, place: Placement) -> None:
        self.policy = policy
        self._place = place

    def prefix(self, observation: Observation, **given: Any) -> tuple[Observation, dict[str, Any]]:
        """Nothing."""
        return observation, given

    def suffix(self, crossed: tuple[Observation, dict[str, Any]]) -> Answer:
        """The whole query. Raises InputError."""
        self._place.take()
        observation, given = crossed
        query = self.policy.query(observation, **given)
        return Answer(query, 0, 0.0, (query.timing.query_ms + query.timing.step_ms) / _MS)

    def warm_up(self) -> None:
        """Run it once."""
        self.policy.warm_up()

    def close(self) -> None:
        """Free the weights; the policy cannot be used afterwards."""
        self.policy.close()
