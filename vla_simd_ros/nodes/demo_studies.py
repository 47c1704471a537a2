"""Studies with the nodes end to end: injected delays, execution horizons, and the check of the prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.control.delay_distribution import DelayDistribution, delay_distribution
from vla_simd_ros.control.frame_schedule import SupplyPrediction
from vla_simd_ros.control.schedule import Schedule
from vla_simd_ros.control.starvation import Starvation
from vla_simd_ros.control.studies import delay_study, horizon_study
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.nodes.demo_measured import (
    Measured,
    NodeRates,
    NodeTimes,
    node_times,
    predict,
    publish_time,
)
from vla_simd_ros.nodes.demo_run import DemoError
from vla_simd_ros.nodes.demo_series import DemoSeries, SeriesRun, Variation

CAMERA_RATE = 30.0
NO_DELAY = "fixed:0"
_UNDELAYED_S = 5.0
_CHECKS = (
    ("lognormal:180,0.3", Mode.TIME_ALIGNED, 13),
    ("lognormal:180,0.3", Mode.LAGGED, 7),
    ("lognormal:90,0.5", Mode.TIME_ALIGNED, 8),
)
"""Delays and windows at which a good share of the chunks come too late: a wrong prediction shows."""
_CHECK_CONFIDENCE = 0.95


@dataclass(frozen=True)
class StudyRow:
    """One run beside what was predicted: by the model of the nodes, and by that of queries on ticks."""

    name: str
    value: float
    mode: str
    window: int
    measured: Measured
    predicted: SupplyPrediction
    on_ticks: Starvation


class Study:
    """Runs of a series with their predictions.

    A first run without a delay tells what else there is between a query's end and its publication.
    """

    def __init__(self, series: DemoSeries, seconds: float, confidence: float) -> None:
        self._series = series
        self._seconds = seconds
        self._confidence = confidence
        self._rates = NodeRates(CAMERA_RATE, float(series.executor_parameter("control_rate", "30.0")))
        undelayed = series.run(Variation("without delay", {"inject_delay": ""}, _mode(series)), _UNDELAYED_S)
        if not undelayed.recording.timings:
            raise DemoError(f"the policy answered no query within {_UNDELAYED_S:g} s")
        self._publish_s = publish_time(undelayed.recording)

    def delays(self, delays_ms: Sequence[float]) -> list[StudyRow]:
        """Each delay added to every query."""
        return [self._delay_row(delay) for delay in delays_ms]

    def _delay_row(self, delay_ms: float) -> StudyRow:
        text = f"fixed:{delay_ms:g}"
        run = self._run(Variation(f"{delay_ms:g} ms", {"inject_delay": text}, _mode(self._series)))
        times = self._times(run)

        def on_ticks(schedule: Schedule) -> Starvation:
            found = delay_study(times.queries, schedule, schedule.window, [delay_ms])[0]
            return found.overlapping[_mode_of(run)].predicted

        return self._row(run, delay_ms, times, delay_distribution(text), on_ticks)

    def horizons(self, horizons: Sequence[int], delay: str) -> list[StudyRow]:
        """Only the first S rows of each chunk executed."""
        return [self._horizon_row(horizon, delay) for horizon in horizons]

    def _horizon_row(self, horizon: int, text: str) -> StudyRow:
        policy = {"inject_delay": text, "window": horizon}
        run = self._run(Variation(f"S = {horizon}", policy, _mode(self._series)))
        times, delay = self._times(run), delay_distribution(text)

        def on_ticks(schedule: Schedule) -> Starvation:
            sample = _with(times, delay)
            found = horizon_study(sample, schedule, [horizon])[0]
            return found.overlapping[_mode_of(run)].predicted

        return self._row(run, horizon, times, delay, on_ticks)

    def checks(self) -> list[StudyRow]:
        """Runs in which many chunks come too late."""
        rows = []
        for text, mode, window in _CHECKS:
            policy = {"inject_delay": text, "window": window}
            run = self._run(Variation(f"{text}, {mode.value}, H = {window}", policy, {"mode": mode.value}))
            times, delay = self._times(run), delay_distribution(text)

            def on_ticks(
                schedule: Schedule,
                times: NodeTimes = times,
                delay: DelayDistribution = delay,
                mode: Mode = mode,
            ) -> Starvation:
                found = horizon_study(_with(times, delay), schedule, [schedule.window])[0]
                return found.overlapping[mode].predicted

            rows.append(self._row(run, float(window), times, delay, on_ticks))
        return rows

    def _run(self, variation: Variation) -> SeriesRun:
        run = self._series.run(variation, self._seconds)
        if not run.recording.chunks:
            raise DemoError(f"{variation.name}: no chunk within {self._seconds:g} s")
        return run

    def _times(self, run: SeriesRun) -> NodeTimes:
        return node_times(run.recording, self._publish_s)

    def _row(
        self,
        run: SeriesRun,
        value: float,
        times: NodeTimes,
        delay: DelayDistribution,
        on_ticks: Callable[[Schedule], Starvation],
    ) -> StudyRow:
        chunk = run.recording.chunks[-1]
        schedule = Schedule(self._rates.control, chunk.window, added_s=times.ready + times.transport)
        return StudyRow(
            name=run.variation.name,
            value=value,
            mode=_mode_of(run).value,
            window=chunk.window,
            measured=run.counts,
            predicted=predict(run.recording, times, self._rates, delay, run.counts, self._confidence),
            on_ticks=on_ticks(schedule),
        )


def misses(rows: Sequence[StudyRow]) -> list[str]:
    """What was measured outside of the predicted interval, in words."""
    found = []
    for row in rows:
        for what in ("starved", "stale"):
            value, expected = getattr(row.measured, what), getattr(row.predicted, what)
            if not expected.covers(value):
                found.append(
                    f"{row.name}: {value} {what}, predicted {expected.low:.0f} to {expected.high:.0f}"
                )
    return found


def check_confidence() -> float:
    """For each of the checked quantities, so that all of them together hold with 95 %."""
    return 1.0 - (1.0 - _CHECK_CONFIDENCE) / (2 * len(_CHECKS))


def _with(times: NodeTimes, delay: DelayDistribution) -> Any:
    """Query times with the delay, for the model that knows no order."""
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.choice(times.queries, _SAMPLE) + delay.draw(rng, _SAMPLE)


_SAMPLE = 2000


def _mode(series: DemoSeries) -> dict[str, str]:
    """The mode of all runs: what the user gave, else time-aligned."""
    return {"mode": series.executor_parameter("mode", Mode.TIME_ALIGNED.value)}


def _mode_of(run: SeriesRun) -> Mode:
    return Mode(run.recording.executor[-1].mode)
