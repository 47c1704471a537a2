"""Feeds the controller of the cut with what frames took, and keeps what there is to tell of them."""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque
from itertools import pairwise
from typing import Protocol

from vla_simd_ros.hybrid.cut_controller import CutController, FrameState
from vla_simd_ros.hybrid.frame_pipeline import Drop, FrameResult, FrameTimes, PipelineCounts
from vla_simd_ros.hybrid.hybrid_policy import Answer
from vla_simd_ros.hybrid.machine_state import Loads

_RESULTS = 17
"""The interval is the median over those between so many results."""


class LoadSource(Protocol):
    """Says what others take of the machine, as MachineState does."""

    def sample(self) -> Loads:
        """The loads now."""
        ...


class CutMover:
    """Moves the cut after every prefix, and after every result of a frame that was cut.

    Attributes:
        blocks: of the prefix of the next frame.
        moves: how often that has changed.
        loads: those sampled last.
        answer, latency_s: the last result, and from its submission to then; None and NaN before the first.
    """

    def __init__(self, controller: CutController, machine: LoadSource) -> None:
        self._controller = controller
        self._machine = machine
        self._moving = threading.Lock()  # either stage's thread tells of what has ended
        self._ends: deque[float] = deque(maxlen=_RESULTS)
        self._busy = 0
        self.blocks = controller.blocks
        self.moves = 0
        self.loads = Loads(None, None)
        self.answer: Answer | None = None
        self.latency_s = math.nan

    @property
    def interval_s(self) -> float:
        """From result to result; NaN before the second."""
        steps = [later - earlier for earlier, later in pairwise(tuple(self._ends))]
        return statistics.median(steps) if steps else math.nan

    @property
    def predicted_s(self) -> float:
        """The interval that is expected of the present cut."""
        return self._controller.interval_s(self.blocks)

    def sample(self) -> None:
        """Look at the machine; takes as long as its drivers do."""
        self.loads = self._machine.sample()

    def interrupted(self) -> None:
        """Frames do not follow each other now: the next interval is none."""
        self._ends.clear()

    def prefix_ended(self, blocks: int, took_s: float) -> None:
        """Take in what a prefix of ``blocks`` took; its result comes to :meth:`frame` later."""
        with self._moving:
            self._controller.prefix_ended(blocks, took_s, _or_unknown(self.loads.gpu))
            self._move()

    def frame(self, result: FrameResult, answer: Answer, counts: PipelineCounts) -> None:
        """Take a result in."""
        assert result.times.suffix_ended is not None
        self._ends.append(result.times.suffix_ended)
        self.answer, self.latency_s = answer, result.latency_s
        busy = counts.dropped[Drop.SUFFIX_BUSY]
        backlog, self._busy = busy - self._busy, busy
        if not answer.blocks:
            return
        state = FrameState(
            answer.blocks,
            answer.prefix_s,
            answer.suffix_s,
            _or_unknown(self.loads.gpu),
            _or_unknown(self.loads.cpu),
            backlog,
            self._delay(result.times),
        )
        with self._moving:
            self._controller.observe(state)
            self._move()

    def _move(self) -> None:
        blocks = self._controller.blocks
        if blocks != self.blocks:
            self.blocks, self.moves = blocks, self.moves + 1

    def _delay(self, times: FrameTimes) -> int:
        """Results that came after the frame had begun, without its own."""
        assert times.prefix_began is not None
        return sum(end > times.prefix_began for end in self._ends) - 1


def _or_unknown(load: float | None) -> float:
    return math.nan if load is None else load
