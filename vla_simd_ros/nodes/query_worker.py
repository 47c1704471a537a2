"""The thread that runs the policy, so that the node keeps receiving while a query is in the engine.

Queries run one after the other, on observations that are due and the newest there are. A new episode, a pause
or a stop ends the one that runs; what it brings all the same is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from vla_simd_ros.inference import Cancelled
from vla_simd_ros.nodes.encodings import Encoding
from vla_simd_ros.nodes.episodes import Episode


class Runner(Protocol):
    """What the worker calls, in its own thread; the node provides it."""

    def begin(self, episode: Episode) -> float:
        """Run the episode program; milliseconds spent."""

    def due(self, frames: FrameSet) -> bool:
        """Whether to query these frames, rather than to wait for the next ones."""

    def query(self, frames: FrameSet) -> Any:
        """Run a query on a set of frames; None when there is no usable observation after all."""

    def deliver(self, result: Any, episode: Episode, episode_ms: float) -> None:
        """Publish a result; called only while its episode is still the present one."""

    def failed(self, error: Exception) -> None:
        """An episode or a query raised."""

    def cancel(self) -> None:
        """From any thread: what runs, and what is called until :meth:`resume`, raises Cancelled soon."""

    def resume(self) -> None:
        """Let calls run again."""

    def close(self) -> None:
        """Free what the runner holds; nothing is called afterwards, except cancel."""


@dataclass(frozen=True)
class Frame:
    """A camera message, and how its picture is laid out where that has been checked: not a compressed one."""

    message: Any = field(repr=False)
    encoding: Encoding | None = None

    @property
    def header(self) -> Any:
        """That of the message."""
        return self.message.header


@dataclass(frozen=True)
class FrameSet:
    """Frames that belong together, by camera.

    ``stamp_ns`` is the capture time of the oldest one, ``received_ns`` the time that one was received, and
    ``complete_ns`` the time the last one was. ``past`` are those of the observation steps before, oldest
    first, for a policy that takes several; None for one of which there are no frames.
    """

    stamp_ns: int
    received_ns: int
    complete_ns: int
    frames: Mapping[str, Frame] = field(repr=False)
    past: Sequence[Mapping[str, Frame] | None] = field(default=(), repr=False)


class QueryWorker:
    """Runs episodes and queries in a daemon thread until it is stopped."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._changed = threading.Condition()
        self._episode: Episode | None = None
        self._frames: FrameSet | None = None
        self._paused = True
        self._stopping = False
        self._begun: Episode | None = None
        self._thread = threading.Thread(target=self._run, name="query", daemon=True)
        self._thread.start()

    def begin(self, episode: Episode) -> None:
        """Start an episode: frames of before are not used, results of before are not delivered."""
        with self._changed:
            self._episode = episode
            self._frames = None
            self._paused = False
            self._runner.cancel()
            self._changed.notify()

    def offer(self, frames: FrameSet) -> None:
        """Provide the newest observation; one that has not been started yet is replaced."""
        with self._changed:
            if not self._paused:
                self._frames = frames
                self._changed.notify()

    def pause(self) -> None:
        """Start no further query and deliver nothing until the next episode."""
        with self._changed:
            self._paused = True
            self._frames = None
            self._runner.cancel()

    def stop(self, timeout_s: float) -> bool:
        """End the thread; false when it is still inside a call, which then closes the runner at its end."""
        with self._changed:
            self._stopping = True
            self._paused = True
            self._runner.cancel()
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(self._has_work)
                    if self._stopping:
                        return
                    episode, frames = self._episode, self._frames
                    self._frames = None
                    self._runner.resume()  # whatever was to end has ended
                assert episode is not None  # _has_work() has seen one
                self._work(episode, frames)
        finally:
            self._runner.close()

    def _has_work(self) -> bool:
        if self._stopping:
            return True
        if self._paused or self._episode is None:
            return False
        return self._frames is not None or self._episode is not self._begun

    def _work(self, episode: Episode, frames: FrameSet | None) -> None:
        try:
            if episode is not self._begun:
                self._begun = episode
                self._ready = False
                self._episode_ms = self._runner.begin(episode)
                self._ready = True
            if frames is None or not self._ready or not self._runner.due(frames):
                return
            result = self._runner.query(frames)
            with self._changed:
                if result is None or self._paused or self._episode is not episode:
                    return
                self._runner.deliver(result, episode, self._episode_ms)
                self._episode_ms = 0.0
        except Cancelled:
            return
        except Exception as error:  # the thread goes on with the next observation
            self._runner.failed(error)
