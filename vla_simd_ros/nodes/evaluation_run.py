"""Episodes through the nodes in real time: a scene put up for each, an instruction given, goals watched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray

from vla_simd_ros.evaluation.goals import Goals
from vla_simd_ros.evaluation.pilot import Counts, Decoding
from vla_simd_ros.evaluation.rollout import Result
from vla_simd_ros.evaluation.session import Condition, Outcome, Say
from vla_simd_ros.evaluation.through_nodes import NodeRequest, Variation, told, variations
from vla_simd_ros.evaluation.world import Episode, Limits
from vla_simd_ros.nodes.demo_processes import ProcessGroup
from vla_simd_ros.nodes.demo_recording import Decoding as QueryDecoding
from vla_simd_ros.nodes.demo_run import EXECUTOR, POLICY, SIM, DemoError, DemoRun, DemoSettings
from vla_simd_ros.nodes.demo_series import STEPS, series_settings
from vla_simd_ros.nodes.latched import subscribe_latched
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.nodes.policy_settings import ENGINE_PARAMETERS
from vla_simd_ros.nodes.robot_sim_tasks import RESETS, SEED
from vla_simd_ros.sim.tasks import CONTROL_RATE, INSTRUCTIONS

_ANSWER_S = 120.0
_FRESH_S = 0.3
"""Pictures of the scene before are no longer on their way after so long."""


@dataclass(frozen=True)
class Scene:
    """What the simulation says of its scene: the seed, how many there were before it, and fulfilled goals."""

    seed: int = -1
    resets: int = -1
    fulfilled: frozenset[str] = frozenset()


def scene_of(values: Mapping[str, str]) -> Scene:
    """From the values of a message on ~/achieved."""
    fulfilled = frozenset(text for text in INSTRUCTIONS if values.get(text) == "true")
    return Scene(int(values[SEED]), int(values[RESETS]), fulfilled)


class EvaluationRun(DemoRun):
    """Runs the conditions of an evaluation; the nodes are configured anew for each."""

    def __init__(self, asked: NodeRequest, group: ProcessGroup, say: Say) -> None:
        super().__init__(series_settings(demo_settings(asked)), group, say)
        self._request = asked.request
        self._configured = False
        self._scene = Scene()
        self._goals = Goals(math.inf)
        self._status = ""
        self._achieved = subscribe_latched(self._node, DiagnosticArray, f"{SIM}/achieved", self._on_achieved)

    def evaluate(self) -> list[Outcome]:
        """All conditions. Raises ProcessError when a node dies, DemoError when one does not do its part."""
        self._start_nodes()
        self._stop_cameras([])
        self._node.ignore_cameras()
        trials = self._request.trials(INSTRUCTIONS)
        limits = self._request.limits(round(1e9 / CONTROL_RATE))
        outcomes = []
        for variation in variations(self._request):
            self._configure(variation, next(iter(trials.values()))[0].instruction)
            for shuffled, episodes in trials.items():
                condition = told(variation, shuffled)
                self._say(f"{condition}: {len(episodes)} episodes")
                outcomes.append(self._condition(condition, episodes, limits))
        self._transition(POLICY, "deactivate", STEPS["deactivate"])
        return outcomes

    def _condition(self, condition: Condition, episodes: list[Episode], limits: Limits) -> Outcome:
        results: list[Result] = []
        for episode in episodes:
            won = sum(result.success for result in results)
            self._status = f"episode {len(results) + 1} of {len(episodes)}; {won} of {len(results)} succeeded"
            results.append(self._episode(episode, limits))
        outcome = Outcome(condition, tuple(results), 1.0 / CONTROL_RATE)
        self._say(f"{outcome.success} of the episodes succeeded")
        return outcome

    # --- nodes ------------------------------------------------------------------------------------

    def _configure(self, variation: Variation, instruction: str) -> None:
        """Both nodes with the parameters of a condition, the policy active."""
        if self._configured:
            self._transition(POLICY, "deactivate", STEPS["deactivate"])
            for node in (POLICY, EXECUTOR):
                self._transition(node, "cleanup", STEPS["cleanup"])
        self._configured = True
        for node, values in ((POLICY, variation.policy), (EXECUTOR, variation.executor)):
            for name, value in values.items():
                self._set_parameter(node, name, value)
        self._node.instruct(instruction)
        self._say(f"loading {variation.policy['checkpoint']}")
        for node in (POLICY, EXECUTOR):
            self._transition(node, "configure", STEPS["configure"])
        self._transition(POLICY, "activate", STEPS["activate"])

    def _put_up(self, seed: int) -> None:
        """The scene of a seed, with the arm where it starts, and nothing of the one before under way."""
        self._set_parameter(SIM, "scene_seed", seed)
        before = self._scene.resets
        self._trigger(SIM, "reset_scene")
        self._wait(
            lambda: self._scene.resets > before and self._scene.seed == seed,
            _ANSWER_S,
            SIM,
            f"the scene of seed {seed}",
        )
        self._spin(_FRESH_S, self._progress)

    def _trigger(self, node: str, service: str) -> None:
        request = self._requests.trigger(f"{node}/{service}")
        answer = self._answer(request, _ANSWER_S, node, f"{node} to {service}")
        if not answer.success:
            raise DemoError(self._with_log(node, f"{node} could not {service}: {answer.message}"))

    def _instruct(self, text: str) -> None:
        """A new epoch with this instruction, of which the first chunk has come."""
        chunks = self._recording.chunks
        before = max((chunk.epoch for chunk in chunks), default=0)
        self._node.instruct(text)
        self._trigger(POLICY, "reset")

        def answered() -> bool:
            # A policy without language leaves the text empty.
            return any(chunk.epoch > before and chunk.instruction in (text, "") for chunk in chunks)

        self._wait(answered, _ANSWER_S, POLICY, f"a chunk for '{text}'")

    # --- episodes ---------------------------------------------------------------------------------

    def _episode(self, episode: Episode, limits: Limits) -> Result:
        """The executor commands nothing while the scene is put up and the policy told."""
        self._put_up(episode.seed)
        self._instruct(episode.instruction)
        # The last chunk stays: it tells the epoch.
        last = self._recording.chunks[-1]
        self._recording.begin(self._node.now)
        self._recording.chunks.append(last)
        self._report_since(self._recording.start)
        self._goals = Goals(limits.settle / CONTROL_RATE)
        self._transition(EXECUTOR, "activate", STEPS["activate"])
        start_ns = self._node.now
        self._spin(limits.steps / CONTROL_RATE, self._progress, lambda: self._reached(episode.instruction))
        end_ns = self._node.now
        self._transition(EXECUTOR, "deactivate", STEPS["deactivate"])
        self._report_since(end_ns)
        success = self._reached(episode.instruction)
        return Result(
            episode=episode,
            success=success,
            steps=min(limits.steps, math.ceil((end_ns - start_ns) * 1e-9 * CONTROL_RATE)),
            reached=frozenset(self._goals.reached),
            failure="" if success else self._goals.missed(limits.steps),
            counts=self._counts(),
            state={} if success else self._state(),
        )

    def _on_achieved(self, message: DiagnosticArray) -> None:
        """What is fulfilled is told when it changes."""
        time_s = nanoseconds(message.header.stamp) * 1e-9
        self._goals.see(self._scene.fulfilled, time_s)
        self._scene = scene_of({pair.key: pair.value for pair in message.status[0].values})
        self._goals.see(self._scene.fulfilled, time_s)

    def _reached(self, instruction: str) -> bool:
        """By the simulation's own time: this process may be behind with its messages."""
        joints = self._recording.joint_states
        if joints:
            self._goals.see(self._scene.fulfilled, joints[-1].time * 1e-9)
        return instruction in self._goals.reached

    def _report_since(self, time_ns: int) -> None:
        """Wait for a report that the executor made after a time, inactive."""

        def reported() -> bool:
            reports = self._recording.executor
            return bool(reports) and reports[-1].time >= time_ns and reports[-1].state == "INACTIVE"

        self._wait(reported, _ANSWER_S, EXECUTOR, "a report of the executor")

    def _counts(self) -> Counts:
        """What the executor and the policy did since the episode began."""
        first, last = self._recording.executor[0], self._recording.executor[-1]
        query_ms = [timing.milliseconds["total_ms"] for timing in self._recording.timings]

        def grown(name: str) -> int:
            return int(last.values[name] - first.values[name])

        return Counts(
            queries=len(query_ms),
            executed_rows=grown("executed_steps"),
            starved_steps=grown("starved_steps"),
            stale_rows=grown("stale_rows_dropped"),
            query_ms=float(np.median(query_ms)) if query_ms else math.nan,
            decoding=together([each.decoding for each in self._recording.timings if each.decoding]),
        )

    def _state(self) -> dict[str, list[float]]:
        joints = self._recording.joint_states
        return {"joints": list(joints[-1].positions)} if joints else {}

    def _progress(self) -> str:
        return f"{self._status}; {super()._progress()}"


def together(queries: Sequence[QueryDecoding]) -> Decoding | None:
    """Of all queries that decoded tokens; None where there are none."""
    if not queries:
        return None
    rates = [each.mean_tokens_per_second for each in queries]
    return Decoding(
        passes=sum(each.passes for each in queries),
        tokens=sum(each.tokens for each in queries),
        seconds=sum(each.tokens / each.mean_tokens_per_second for each in queries),
        slowest=min(rates),
        fastest=max(rates),
    )


def demo_settings(asked: NodeRequest) -> DemoSettings:
    """What the demo's parts need to know; the parameters of conditions are set when their turn comes.

    Raises DemoError for a setting of the engine that is no parameter of the policy node.
    """
    request = asked.request
    engine = {name: str(value) for name, value in request.changes.items()}
    if unknown := sorted(set(engine) - set(ENGINE_PARAMETERS)):
        raise DemoError(
            f"{POLICY} has no parameter for the setting {unknown[0]}, expected some of "
            f"{', '.join(ENGINE_PARAMETERS)}"
        )
    return DemoSettings(
        checkpoint=request.checkpoints[0],
        note="",
        duration=0.0,
        instructions=[],
        parameters={
            SIM: {"image_width": str(asked.width), "image_height": str(asked.height)},
            POLICY: {"settings": request.settings, **engine},
            EXECUTOR: {"control_rate": str(CONTROL_RATE)},
        },
        out=Path(asked.out),
        config=Path(asked.config),
    )
