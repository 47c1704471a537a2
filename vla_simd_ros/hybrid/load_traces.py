"""Load traces: what others take of either side, frame by frame; of several kinds, or recorded."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vla_simd_ros.hybrid.stage_costs import CostError

LoadTrace = npt.NDArray[np.float64]
"""[frames, 2]: shares of the first and the second side's time, 0 to less than 1; or one side's, [frames]."""
LoadKind = Callable[[np.random.Generator, int], LoadTrace]
"""So many frames of one side's load."""

MOST_LOAD = 0.9
"""More is cut off: who takes all of a side leaves nothing to compute with."""


def _wave(shortest: float, longest: float) -> LoadKind:
    def made(rng: np.random.Generator, frames: int) -> LoadTrace:
        high, phase = rng.uniform(0.15, 0.35), rng.uniform(0.0, 2 * np.pi)
        turns = np.arange(frames) / rng.uniform(shortest, longest)
        return np.asarray(high * (1.0 + np.sin(2 * np.pi * turns + phase)))

    return made


def _square(shortest: int, longest: int, share: float) -> LoadKind:
    """Work of the same length again and again."""

    def made(rng: np.random.Generator, frames: int) -> LoadTrace:
        period = int(rng.integers(shortest, longest + 1))
        at = (np.arange(frames) + rng.integers(period)) % period
        return np.where(at < max(1, round(share * period)), rng.uniform(0.4, 0.7), 0.0)

    return made


def _modules(rng: np.random.Generator, frames: int) -> LoadTrace:
    """Three modules that work at rates of their own, not at that of the frames."""
    fine = 20
    at = np.arange(frames * fine) / fine
    load = np.zeros(len(at))
    for period in rng.uniform(5.0, 60.0, 3):
        works = (at + rng.uniform(0.0, period)) % period < period * rng.uniform(0.1, 0.3)
        load += works * rng.uniform(0.2, 0.4)
    return np.asarray(load.reshape(frames, fine).mean(axis=1))


def _saw(rng: np.random.Generator, frames: int) -> LoadTrace:
    period = rng.uniform(30.0, 150.0)
    at = np.arange(frames) + rng.uniform(0.0, period)
    return np.asarray(0.7 * (at % period) / period)


def _levels(shortest: int, longest: int) -> LoadKind:
    """Another load every so many frames."""

    def made(rng: np.random.Generator, frames: int) -> LoadTrace:
        lengths = rng.integers(shortest, longest + 1, frames // shortest + 1)
        return np.repeat(rng.uniform(0.0, 0.7, len(lengths)), lengths)[:frames]

    return made


def _comes_and_goes(working: float, resting: float) -> LoadKind:
    """Work that begins and ends by chance; means of its lengths and of those between."""

    def made(rng: np.random.Generator, frames: int) -> LoadTrace:
        lengths = rng.geometric(np.tile([1.0 / resting, 1.0 / working], frames))
        return np.repeat(np.tile([0.0, rng.uniform(0.35, 0.65)], frames), lengths)[:frames]

    return made


def _jobs(rng: np.random.Generator, frames: int) -> LoadTrace:
    """Jobs that take a few percent each, begin by chance and overlap."""
    load = np.zeros(frames)
    for start in np.flatnonzero(rng.random(frames) < 0.1):
        load[start : start + rng.geometric(1 / 20)] += rng.uniform(0.06, 0.18)
    return load


def _walk(rng: np.random.Generator, frames: int) -> LoadTrace:
    return np.asarray(0.35 + 0.35 * np.sin(3.0 * np.cumsum(rng.normal(0.0, 0.02, frames))))


def _noise(alike: float) -> LoadKind:
    """Noise that is alike for so many frames; 0: another one in every frame."""

    def made(rng: np.random.Generator, frames: int) -> LoadTrace:
        keeps = np.exp(-1.0 / alike) if alike else 0.0
        load, steps = np.zeros(frames), rng.normal(0.0, np.sqrt(1.0 - keeps**2), frames)
        for at in range(1, frames):
            load[at] = keeps * load[at - 1] + steps[at]
        return 0.3 + 0.2 * load

    return made


def _spikes(rng: np.random.Generator, frames: int) -> LoadTrace:
    return np.where(rng.random(frames) < 0.04, rng.uniform(0.4, 0.8, frames), 0.0)


LOAD_KINDS: Mapping[str, LoadKind] = {
    "none": lambda rng, frames: np.zeros(frames),
    "constant": lambda rng, frames: np.full(frames, rng.uniform(0.1, 0.6)),
    "waves-100-600": _wave(100.0, 600.0),
    "waves-20-60": _wave(20.0, 60.0),
    "waves-5-20": _wave(5.0, 20.0),
    "squares-20-60": _square(20, 60, 0.5),
    "squares-4-16": _square(4, 16, 0.5),
    "alternating": _square(2, 2, 0.5),
    "bursts-6-of-40": _square(30, 50, 0.15),
    "bursts-2-of-30": _square(25, 35, 0.07),
    "saw-30-150": _saw,
    "modules": _modules,
    "levels-40-160": _levels(40, 160),
    "levels-10-40": _levels(10, 40),
    "levels-4-12": _levels(4, 12),
    "work-30-of-90": _comes_and_goes(30.0, 60.0),
    "work-10-of-30": _comes_and_goes(10.0, 20.0),
    "work-4-of-12": _comes_and_goes(4.0, 8.0),
    "jobs": _jobs,
    "walk": _walk,
    "noise-100": _noise(100.0),
    "noise-30": _noise(30.0),
    "noise-10": _noise(10.0),
    "noise-3": _noise(3.0),
    "noise": _noise(0.0),
    "spikes": _spikes,
}
"""By their names. Numbers are frames: of a period, of a level, in the mean of work that comes and goes, of
noise that is alike."""

LOADED_SIDES = ("prefix", "suffix", "both")


def make_loads(kind: str, side: str, seed: int, frames: int) -> LoadTrace:
    """The load of one side, or of both, each by itself. Raises CostError for a kind that there is not."""
    if kind not in LOAD_KINDS:
        raise CostError(f"the load '{kind}' is unknown, expected one of {', '.join(LOAD_KINDS)}")
    if side not in LOADED_SIDES:
        raise CostError(f"the loaded side is '{side}', expected one of {', '.join(LOADED_SIDES)}")
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    loads = np.zeros((frames, 2))
    for column, name in enumerate(LOADED_SIDES[:2]):
        if side in (name, "both"):
            loads[:, column] = np.clip(LOAD_KINDS[kind](rng, frames), 0.0, MOST_LOAD)
    return loads


def read_loads(path: Path) -> LoadTrace:
    """A recording: a line for each frame, the shares of the first and the second side's time, 0 to 1, with a
    comma between. Raises CostError, naming the file and the line."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [_shares(row, f"{path}:{number}") for number, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CostError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise CostError(f"{path}: there are no loads, expected a line for each frame")
    return np.array(rows).clip(max=MOST_LOAD)


def _shares(row: list[str], where: str) -> tuple[float, float]:
    try:
        first, second = map(float, row)
    except ValueError:
        raise CostError(f"{where}: '{','.join(row)}', expected two numbers and a comma between") from None
    if not (0.0 <= first <= 1.0 and 0.0 <= second <= 1.0):
        raise CostError(f"{where}: '{','.join(row)}', expected shares from 0 to 1")
    return first, second
