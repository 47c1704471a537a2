"""Runs episodes and frames through the two stages of a hybrid policy, and sees to it that they go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from vla_simd_ros.hybrid.cut_mover import CutMover
from vla_simd_ros.hybrid.frame_pipeline import FrameResult
from vla_simd_ros.hybrid.pipeline_supervisor import PipelineSupervisor, RestartSettings
from vla_simd_ros.nodes.episodes import Episode
from vla_simd_ros.nodes.frame_stages import FrameStages, Predicted, Submitted
from vla_simd_ros.nodes.policy_runner import PolicyRunner
from vla_simd_ros.nodes.query_worker import FrameSet

_TURN_S = 0.02
_SAMPLE_S = 0.2
_CLOSE_S = 0.3


class HybridWorker:
    """A thread that readies the stages for each episode and watches over them, in QueryWorker's place.

    Args:
        runner: makes observations, and chunks of predictions.
        stages: the first ones.
        make: makes others like them.
        make_fallback: makes stages of the policy that is not cut.
        restarts: what is a failure, and what follows.
        mover: moves the cut.
        changed: called, from any thread, when there is something new to tell.
        late_prefix: as of PipelineSupervisor.
    """

    def __init__(
        self,
        runner: PolicyRunner,
        stages: FrameStages,
        make: Callable[[], FrameStages],
        make_fallback: Callable[[], FrameStages],
        restarts: RestartSettings,
        mover: CutMover,
        changed: Callable[[], None],
        late_prefix: bool = False,
    ) -> None:
        self._runner = runner
        self._mover = mover
        self._tell = changed
        self._changed = threading.Condition()
        self._episode: Episode | None = None  # the present one; None while paused
        self._begun: Episode | None = None
        self._kept: Submitted | None = None
        self._stopping = False
        self._at_rest = True
        self._spent = (0, 0.0)
        self.supervisor = PipelineSupervisor(
            stages,
            make,
            make_fallback,
            restarts,
            on_result=self._deliver,
            on_drop=lambda number, reason: None,  # counted by the supervisor
            on_failure=self._failed,
            clock=time.monotonic,
            late_prefix=late_prefix,
        )
        """What there is to know of modes, restarts and frames."""
        self._thread = threading.Thread(target=self._run, name="hybrid", daemon=True)
        self._thread.start()

    def begin(self, episode: Episode) -> None:
        """Start an episode: frames and results of before do not count any more."""
        with self._changed:
            self._episode, self._kept = episode, None
            self.supervisor.pause()
            self._changed.notify()

    def offer(self, frames: FrameSet) -> None:
        """Provide the newest observation; while nothing computes yet it waits, in the place of the last."""
        with self._changed:
            episode = self._episode
            if episode is None or not self._runner.due(frames):
                return
            if self._kept is not None:  # there is a newer one now
                self._kept = None
                self.supervisor.refuse()
            submitted = Submitted(frames, episode)
            if self._begun is not episode or self.supervisor.waiting:
                self._kept = submitted
            else:
                self.supervisor.submit(submitted)

    def pause(self) -> None:
        """Do nothing and deliver nothing until the next episode."""
        with self._changed:
            self._episode = self._kept = None
            self.supervisor.pause()

    def stop(self, timeout_s: float) -> bool:
        """End; false when a stage is still running, which keeps what it computes with."""
        with self._changed:
            self._stopping = True
            self._episode = self._kept = None
            self.supervisor.pause()
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and self._at_rest

    def _run(self) -> None:
        sampled = -_SAMPLE_S
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(self._has_work, _TURN_S)
                    if self._stopping:
                        return
                    episode = self._episode
                if episode is not None and episode is not self._begun:
                    self._begin(episode)
                self._turn()
                if time.monotonic() - sampled >= _SAMPLE_S:
                    sampled = time.monotonic()
                    self._mover.sample()
        finally:
            self._at_rest = self.supervisor.close(_CLOSE_S)

    def _has_work(self) -> bool:
        return self._stopping or (self._episode is not None and self._episode is not self._begun)

    def _begin(self, episode: Episode) -> None:
        def prepare(stages: FrameStages) -> None:
            self._spent = episode.epoch, stages.instruct(episode)

        self._mover.interrupted()
        try:
            self.supervisor.run(prepare)
        except ValueError as error:  # the instruction cannot be followed
            self._runner.failed(error)
        self._begun = episode
        self._tell()

    def _turn(self) -> None:
        waited = self.supervisor.waiting
        self.supervisor.check()
        if waited != self.supervisor.waiting:
            self._mover.interrupted()
            self._tell()
        with self._changed:
            if self._kept is None or self.supervisor.waiting or self._begun is not self._episode:
                return
            kept, self._kept = self._kept, None
            self.supervisor.submit(kept)

    def _deliver(self, result: FrameResult) -> None:
        """Called by a stage's thread."""
        predicted: Predicted = result.value
        # A stage's thread may be here while the node's begins another episode: its chunk would be refused.
        if predicted.episode is not self._episode:
            return
        epoch, spent = self._spent
        self._spent = epoch, 0.0
        try:
            self._runner.deliver(predicted.prediction, predicted.episode, spent)
            self._mover.frame(result, predicted.answer, self.supervisor.counts)
        except Exception as error:  # the next frame's result may do better
            self._runner.failed(error)
        self._tell()

    def _failed(self, reason: str) -> None:
        self._runner.failed(RuntimeError(reason))
        self._tell()
