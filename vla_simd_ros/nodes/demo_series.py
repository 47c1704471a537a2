"""A series of runs of the demo with one thing changed from run to run, in one set of node processes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lifecycle_msgs.msg import Transition

from vla_simd_ros.nodes.demo_measured import Measured, measured
from vla_simd_ros.nodes.demo_processes import ProcessGroup
from vla_simd_ros.nodes.demo_recording import Recording
from vla_simd_ros.nodes.demo_run import EXECUTOR, POLICY, DemoRun, DemoSettings

# Late chunks are what is studied: no watchdog is to end a run. States this frequent show nearly all rows.
_POLICY = {"max_observation_age": 10.0}
_EXECUTOR = {
    "policy_timeout": 120.0,
    "starvation_timeout": 120.0,
    "max_chunk_age": 60.0,
    "state_rate": 60.0,
}
STEPS = {
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
}
"""Transitions of lifecycle nodes by name."""
_FIRST_ROW_S = 6.0
"""Longest wait for the first row: where every chunk comes too late there is none."""


_CHUNKS_S = 120.0


@dataclass(frozen=True)
class Variation:
    """One run of a series: its name, and the parameters of both nodes that make it."""

    name: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    executor: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SeriesRun:
    """A run's recording and its counts."""

    variation: Variation
    recording: Recording
    counts: Measured


class DemoSeries(DemoRun):
    """Runs variations one after the other; the nodes are configured anew for each."""

    def __init__(self, settings: DemoSettings, group: ProcessGroup, say: Callable[[str], None]) -> None:
        super().__init__(settings, group, say)
        self._active = False

    def begin(self) -> None:
        """Start the nodes, with cameras that deliver."""
        self._start_nodes()
        self._node.instruct(self._settings.instructions[0])
        self._stop_cameras([])
        self._node.ignore_cameras()

    def run(
        self, variation: Variation, seconds: float, chunks_before: int = 0, keep_executor: bool = False
    ) -> SeriesRun:
        """One run of ``seconds``, after its first row and so many chunks. Raises like `DemoRun.execute`.

        With ``keep_executor`` the executor goes on as it was in the run before, whatever the variation says
        of it: its control steps then lie to the frames as they did.
        """
        parameters = {POLICY: variation.policy, EXECUTOR: variation.executor}
        if keep_executor:
            del parameters[EXECUTOR]
        if self._active:
            self._through(parameters, "deactivate", "cleanup")
        self._active = True
        for node, values in parameters.items():
            for name, value in values.items():
                self._set_parameter(node, name, value)
        recording = self._recording
        recording.begin(self._node.now)
        self._through(parameters, "configure", "activate")
        if not keep_executor:
            self._wait_for_a_row()
        self._wait(lambda: len(recording.chunks) >= chunks_before, _CHUNKS_S, POLICY, "chunks before the run")
        before = self._group.usage(POLICY).cpu_s
        recording.begin(self._node.now)
        self._spin(seconds, lambda: f"{variation.name}: {self._progress()}")
        recording.end = self._node.now
        spent = self._group.usage(POLICY).cpu_s - before
        rate = float(self.executor_parameter("control_rate", "30.0"))
        run = SeriesRun(variation, copy.deepcopy(recording), measured(recording, rate, spent))
        self._say(f"{variation.name}: {_counts(run.counts)}")
        return run

    def executor_parameter(self, name: str, default: str) -> str:
        """A parameter of the executor as it was given to the whole series."""
        return self._settings.parameters.get(EXECUTOR, {}).get(name, default)

    def _through(self, nodes: Iterable[str], *steps: str) -> None:
        for node in nodes:
            for step in steps:
                self._transition(node, step, STEPS[step])

    def _wait_for_a_row(self) -> None:
        reports = self._recording.executor
        end = time.monotonic() + _FIRST_ROW_S
        while time.monotonic() < end and not (reports and reports[-1].values["executed_steps"]):
            self._turn()


def series_settings(settings: DemoSettings) -> DemoSettings:
    """The settings with the parameters that every series needs; what the user gave stays."""
    parameters = copy.deepcopy(settings.parameters)
    for node, values in ((POLICY, _POLICY), (EXECUTOR, _EXECUTOR)):
        given = {name: str(value) for name, value in values.items()}
        parameters[node] = {**given, **parameters.get(node, {})}
    return DemoSettings(**{**settings.__dict__, "parameters": parameters})


def _counts(counts: Measured) -> str:
    return (
        f"{counts.executed} rows executed, {counts.starved} steps starved ({counts.starved_share:.1%}), "
        f"{counts.stale} rows stale"
    )
