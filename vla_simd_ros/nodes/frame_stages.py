"""The two stages of a frame in the node: from a set of camera frames to a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.hybrid.frame_pipeline import UnusableFrame
from vla_simd_ros.hybrid.hybrid_policy import Answer, TwoStagePolicy
from vla_simd_ros.inference import InputError
from vla_simd_ros.nodes.episodes import Episode
from vla_simd_ros.nodes.policy_runner import PolicyOutputError, PolicyRunner, Prediction, Prepared
from vla_simd_ros.nodes.query_decoding import NotConverged
from vla_simd_ros.nodes.query_worker import FrameSet


@dataclass(frozen=True, eq=False)
class Submitted:
    """A set of frames and the episode that it belongs to."""

    frames: FrameSet
    episode: Episode


@dataclass(frozen=True, eq=False)
class Predicted:
    """What became of it."""

    episode: Episode
    prediction: Prediction
    answer: Answer


class FrameStages:
    """Stages for :class:`vla_simd_ros.hybrid.pipeline_supervisor.PipelineSupervisor`.

    What is wrong with a frame or with the actions that come out is reported by the runner, and the frame
    dropped; whatever else is raised is a failure of the stage.
    """

    def __init__(self, policy: TwoStagePolicy, runner: PolicyRunner) -> None:
        self._policy = policy
        self._runner = runner

    def instruct(self, episode: Episode) -> float:
        """Ready both stages for an episode; milliseconds spent on another instruction. Raises InputError."""
        return self._runner.instruct(self._policy.policy, episode)

    def prefix(self, submitted: Submitted) -> tuple[Episode, Prepared, Any]:
        """Make an observation of the frames and run the first part on it."""
        prepared = self._runner.prepare(submitted.frames)
        if prepared is None:
            raise UnusableFrame(self._runner.unavailable)
        try:
            crossed = self._policy.prefix(prepared.observed.observation, **prepared.given)
        except InputError as error:
            raise self._unusable(error) from error
        return submitted.episode, prepared, crossed

    def suffix(self, between: tuple[Episode, Prepared, Any]) -> Predicted:
        """Run the second part, and make a prediction of its actions."""
        episode, prepared, crossed = between
        self._runner.ready_decoder(self._policy.policy)
        try:
            answer = self._policy.suffix(crossed)
            prediction = self._runner.finish(prepared, answer.query)
        except (InputError, PolicyOutputError, DecodingError) as error:
            raise self._unusable(error) from error
        except NotConverged as error:
            self._runner.withhold(error)
            raise UnusableFrame(str(error)) from error
        self._runner.delay()
        return Predicted(episode, prediction, answer)

    def cancel(self) -> None:
        """End what runs, and what is called until :meth:`resume`."""
        self._policy.policy.cancel()
        self._runner.cancel_delay()

    def resume(self) -> None:
        """Let both stages run."""
        self._policy.policy.resume()
        self._runner.resume_delay()

    def close(self) -> None:
        """Free the policy."""
        self._policy.close()

    def _unusable(self, error: Exception) -> UnusableFrame:
        self._runner.failed(error)
        return UnusableFrame(str(error))
