"""The search for settings: one after the other, a value is kept where it is consistently faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.consistency import Verdict
from vla_simd_ros.executors.settings import EngineSettings, SettingError, settings


@dataclass(frozen=True)
class Step:
    """One value that was tried in place of ``old``: the verdict on old (A) and new (B), or why there is
    none."""

    name: str
    old: Any
    new: Any
    verdict: Verdict | None
    reason: str = ""

    @property
    def kept(self) -> bool:
        """Whether the new value is used from here on."""
        return self.verdict is not None and self.verdict.faster == "B"

    def __str__(self) -> str:
        tried = f"{self.name}: {self.new} instead of {self.old}"
        if self.verdict is None:
            return f"{tried}: {self.reason}"
        outcome = {"A": "slower", "B": "faster, kept", "=": "no consistent difference"}[self.verdict.faster]
        effect, drift = 100 * self.verdict.effect, 100 * self.verdict.drift
        return f"{tried}: {outcome} (time {effect:+.1f} %, drift {drift:.1f} %)"


Compare = Callable[[EngineSettings, EngineSettings], Verdict]


def alternatives(threads: int) -> dict[str, tuple[Any, ...]]:
    """The values tried for each setting, those that matter most first, on a machine of so many cores."""
    fewer = (threads - 1, threads // 2) if threads > 1 else ()
    tried = {
        "convolution": ("measured",),
        "linear": ("direct",),
        "threads": tuple(dict.fromkeys(count for count in fewer if count)),
        "waiting": ("passive",),
        "schedule": ("static", "dynamic"),
        "parallel_cutoff": (8192, 1024),
        "block_rows": (64,),
        "threads_per_view": (1, 2),
        "attention": ("materialized", "fused"),
        "min_panel_rows": (4, 16),
        "weight_packing": ("off",),
        "weight_storage": ("auto", "float32"),
    }
    return {name: values for name, values in tried.items() if name in settings() and values}


def search(
    start: EngineSettings,
    tried: dict[str, Sequence[Any]],
    compare: Compare,
    in_time: Callable[[], bool],
    told: Callable[[Step], None],
) -> tuple[EngineSettings, list[Step]]:
    """Try the values in turn from ``start`` on, while there is time; the settings found and all steps.

    What is decided is not tried again with settings that are decided later: interactions are not searched.
    """
    current, steps = start, []
    for name, values in tried.items():
        for value in values:
            old = getattr(current, name)
            if value == old:
                continue
            step = _try(current, name, value, compare) if in_time() else _late(name, old, value)
            steps.append(step)
            told(step)
            if step.kept:
                current = current.but(**{name: value})
    return current, steps


def _try(current: EngineSettings, name: str, value: Any, compare: Compare) -> Step:
    old = getattr(current, name)
    try:
        return Step(name, old, value, compare(current, current.but(**{name: value})))
    except (SettingError, BenchmarkError) as error:
        return Step(name, old, value, None, str(error))


def _late(name: str, old: Any, value: Any) -> Step:
    return Step(name, old, value, None, "not tried, the time was up")
