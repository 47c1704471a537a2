"""A long run of the demo: whether memory grows, control steps come late, or anything is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vla_simd_ros.nodes.demo_processes import ProcessGroup, Usage
from vla_simd_ros.nodes.demo_report import CameraCount, camera_count
from vla_simd_ros.nodes.demo_run import EXECUTOR, POLICY, SIM, DemoRun, DemoSettings
from vla_simd_ros.sim.scene import CAMERAS

MIB = 1 << 20
MOST_GROWTH = 5 * MIB
MOST_LATE = 1e-3
MOST_FRAMES_LOST = 1e-3
NODES = (SIM, POLICY, EXECUTOR)
# Keys of the executor's diagnostics.
_STEPS = "control steps"
_LATE = "control steps late by more than 5 ms"
_MINUTE_S = 60.0
_IN_STEP_S = 30.0


@dataclass(frozen=True)
class SoakSample:
    """What the nodes had used a number of minutes after the start, and how many steps had been late."""

    minutes: float
    nodes: dict[str, Usage]
    late_steps: int


@dataclass(frozen=True)
class SoakReport:
    """What a soak came to."""

    samples: list[SoakSample]
    control_steps: int
    late_steps: int
    cameras: dict[str, CameraCount]
    chunks_published: int
    chunks_received: int
    chunks_rejected: int

    def growth(self, node: str) -> int:
        """Bytes by which a node has grown since the first minute."""
        first = next((s for s in self.samples if s.minutes >= 1.0), self.samples[0])
        return self.samples[-1].nodes[node].resident - first.nodes[node].resident

    @property
    def late_share(self) -> float:
        """Share of control steps that were late by more than 5 ms."""
        return self.late_steps / self.control_steps if self.control_steps else 1.0

    @property
    def chunks_lost(self) -> int:
        """Chunks that were published and did not arrive."""
        return self.chunks_published - self.chunks_received

    def frames_lost(self) -> float:
        """The largest share of a camera's frames that did not arrive; 1 where nothing is known."""
        return max(
            1.0 - count.received / count.sent if count.sent and count.received is not None else 1.0
            for count in self.cameras.values()
        )


class DemoSoak(DemoRun):
    """Runs for minutes and looks at the processes in between; records counts, not every message."""

    def __init__(self, settings: DemoSettings, group: ProcessGroup, say: Callable[[str], None]) -> None:
        super().__init__(settings, group, say)
        self._first = self._published = self._received_before = 0

    def soak(self, minutes: float) -> SoakReport:
        """The whole run. Raises like `DemoRun.execute`."""
        self._start_nodes()
        self._bring_up()
        recording = self._recording
        recording.begin(self._node.now)
        self._wait(self._in_step, _IN_STEP_S, EXECUTOR, "the executor to execute the newest chunk")
        self._say(f"soaking for {minutes:g} minutes")
        start = time.monotonic()
        samples = [self._sample(0.0)]
        while (left := start + minutes * _MINUTE_S - time.monotonic()) > 0.0:
            self._spin(min(left, _MINUTE_S), self._progress)
            samples.append(self._sample((time.monotonic() - start) / _MINUTE_S))
            self._say(_line(samples[-1]))
            self._forget()
        self._wind_down()
        return self._report(samples)

    def _sample(self, minutes: float) -> SoakSample:
        late = int(self._values(_STEPS)[_LATE])
        return SoakSample(minutes, {name: self._group.usage(name) for name in NODES}, late)

    def _forget(self) -> None:
        """This process would grow by all that it records; the last ones are enough for the counts."""
        recording = self._recording
        self._published = max((chunk.sequence for chunk in recording.chunks), default=self._published)
        for samples in (
            recording.joint_states,
            recording.commands,
            recording.chunks,
            recording.timings,
            recording.budgets,
        ):
            samples.clear()
        del recording.executor[:-1]

    def _in_step(self) -> bool:
        """Whether the executor's counts are known and it executes the newest chunk; from then on chunks are
        counted."""
        chunks, reports = self._recording.chunks, self._recording.executor
        if not any(_STEPS in values for values in self._recording.diagnostics.values()):
            return False
        if not (chunks and reports and reports[-1].values["sequence"] == chunks[-1].sequence):
            return False
        self._first = self._published = chunks[-1].sequence
        self._received_before = int(reports[-1].values["chunks_received"])
        return True

    def _report(self, samples: list[SoakSample]) -> SoakReport:
        self._forget()
        values = self._values(_STEPS)
        return SoakReport(
            samples=samples,
            control_steps=int(values[_STEPS]),
            late_steps=int(values[_LATE]),
            cameras={name: camera_count(self._recording, name) for name in CAMERAS},
            chunks_published=self._published - self._first,
            chunks_received=int(values["chunks received"]) - self._received_before,
            chunks_rejected=int(values["chunks rejected"]),
        )

    def _values(self, key: str) -> Mapping[str, str]:
        """The diagnostic values that hold a key."""
        return next(values for values in self._recording.diagnostics.values() if key in values)


def soak_failures(report: SoakReport) -> list[str]:
    """The bounds that were not kept, in words."""
    found = [
        f"{node} grew by {report.growth(node) / MIB:.1f} MiB after the first minute, "
        f"expected at most {MOST_GROWTH / MIB:.0f}"
        for node in NODES
        if report.growth(node) > MOST_GROWTH
    ]
    if report.late_share > MOST_LATE:
        found.append(
            f"{report.late_share:.2%} of the control steps were late by more than 5 ms, "
            f"expected at most {MOST_LATE:.1%}"
        )
    if report.frames_lost() > MOST_FRAMES_LOST:
        found.append(f"{report.frames_lost():.2%} of a camera's frames were lost")
    if report.chunks_lost > 0:
        found.append(f"{report.chunks_lost} chunks were lost")
    return found


def format_soak(report: SoakReport) -> str:
    """Several lines, for a terminal."""
    lines = [f"{'minute':<8}" + "".join(f"{name + ' (MiB)':>28}" for name in NODES) + f"{'late steps':>12}"]
    lines += [
        f"{sample.minutes:<8.1f}"
        + "".join(f"{sample.nodes[name].resident / MIB:>28.1f}" for name in NODES)
        + f"{sample.late_steps:>12}"
        for sample in report.samples
    ]
    lines += [
        f"{'growth':<8}" + "".join(f"{report.growth(name) / MIB:>+28.1f}" for name in NODES),
        "",
        f"control steps {report.control_steps}, late by more than 5 ms: {report.late_steps} "
        f"({report.late_share:.3%})",
        f"chunks published {report.chunks_published}, received {report.chunks_received}, "
        f"rejected {report.chunks_rejected}",
    ]
    lines += [
        f"camera {name}: {count.sent} frames sent, {count.received} received"
        for name, count in report.cameras.items()
    ]
    verdicts = [f"FAILED: {text}" for text in soak_failures(report)] or ["all bounds are kept"]
    return "\n".join([*lines, "", *verdicts])


def _line(sample: SoakSample) -> str:
    parts: Sequence[str] = [f"{name} {usage.resident / MIB:.1f} MiB" for name, usage in sample.nodes.items()]
    return f"minute {sample.minutes:.1f}: " + ", ".join(parts)
