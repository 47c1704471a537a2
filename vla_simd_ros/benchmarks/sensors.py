"""Temperature and clock of the processor while something is measured, where the kernel tells them."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vla_simd_ros.machine import read_text

_EVERY_S = 1.0


@dataclass(frozen=True)
class Reading:
    """The hottest thermal zone in degrees Celsius and the mean clock of the cores in MHz; None if unknown."""

    celsius: float | None = None
    mhz: float | None = None


def read_sensors(root: Path = Path("/sys")) -> Reading:
    """What the kernel tells now; virtual machines often tell neither."""
    zones = _numbers(root.glob("class/thermal/thermal_zone*/temp"))
    clocks = _numbers(root.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
    return Reading(
        max(zones) / 1e3 if zones else None,
        statistics.mean(clocks) / 1e3 if clocks else None,
    )


def summarize_readings(readings: Sequence[Reading]) -> Reading:
    """The medians."""
    celsius = [reading.celsius for reading in readings if reading.celsius is not None]
    mhz = [reading.mhz for reading in readings if reading.mhz is not None]
    return Reading(statistics.median(celsius) if celsius else None, statistics.median(mhz) if mhz else None)


class SensorWatch:
    """Reads the sensors every second until it is left; ``readings`` are pairs of (seconds since the start,
    reading)."""

    def __init__(self, read: Callable[[], Reading] = read_sensors, every_s: float = _EVERY_S) -> None:
        self.readings: list[tuple[float, Reading]] = []
        self._read = read
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> SensorWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        start = time.monotonic()
        while True:
            self.readings.append((time.monotonic() - start, self._read()))
            if self._ended.wait(self._every_s):
                return


def _numbers(paths: Iterable[Path]) -> list[float]:
    found = []
    for path in paths:
        text = read_text(str(path)).strip()
        if text.lstrip("-").isdigit():
            found.append(float(text))
    return found
