"""How long a policy takes from nothing to its first action, and how much memory.

Every repetition is a process of its own, so that nothing is loaded or warm but the operating system's cache
of files. The clock is the system's monotonic one, the same in all processes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.settings import EngineSettings

STAGES = (
    ("start", "from the start of the process to its first statement: Python itself"),
    ("import", "to the end of importing vla_simd_ros.inference"),
    ("load", "to the end of Policy.load: files opened, tokenizer, engine; for ACT the weights too"),
    ("instruction", "to the end of set_instruction: compile, read and pack weights, encode the text"),
    ("query", "to the first action: a query on black images"),
)
"""Names and meanings of the stages, each of which begins where the one before ends."""

_CHILD = "vla_simd_ros.benchmarks.loading_child"
_READ_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Loading:
    """One load: milliseconds of each stage; bytes of resident memory after importing, at most, at the end."""

    stages_ms: Sequence[float]
    imported_bytes: int
    peak_bytes: int
    resident_bytes: int
    isa: str
    threads: int

    @property
    def total_ms(self) -> float:
        """From the start of the process to the first action."""
        return sum(self.stages_ms)


def measure_loading(
    checkpoint: Path, instruction: str, settings: EngineSettings, repeats: int, say: Callable[[str], None]
) -> list[Loading]:
    """Load ``repeats`` times, with the files in the operating system's cache. Raises BenchmarkError."""
    for file in sorted(checkpoint.rglob("*")):
        _read(file)
    loads = []
    for number in range(1, repeats + 1):
        loads.append(_load(checkpoint, instruction, settings))
        say(f"load {number} of {repeats}: {loads[-1].total_ms:.0f} ms")
    return loads


def weight_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of all weights in float32, whatever they are stored as."""
    return sum(4 * checkpoint.weights.size(name) for name in checkpoint.weights)


def to_json(loads: Sequence[Loading], weights: int, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The report as plain values."""
    peak = max(load.peak_bytes for load in loads)
    median_ms = statistics.median(load.total_ms for load in loads)
    summary = {"weights_bytes": weights, "peak_bytes": peak, "peak_ratio": peak / weights}
    stages = dict(STAGES)
    runs = [asdict(load) for load in loads]
    return {**conditions, "stages": stages, "first_action_ms": median_ms, **summary, "loads": runs}


def to_markdown(loads: Sequence[Loading], weights: int) -> str:
    """Stages with the median and the longest of the loads, and memory."""
    columns = list(zip(*(load.stages_ms for load in loads), strict=True))
    columns.append(tuple(load.total_ms for load in loads))
    names = [*STAGES, ("first action", "from the start of the process to the first action")]
    rows = [
        (name, meaning, f"{statistics.median(times):.0f}", f"{max(times):.0f}")
        for (name, meaning), times in zip(names, columns, strict=True)
    ]
    lines = markdown_table(("stage", "from the end of the one before", "median ms", "longest ms"), rows, 2)
    peak, resident = (max(getattr(load, name) for load in loads) for name in ("peak_bytes", "resident_bytes"))
    first = loads[0]
    lines += [
        "",
        f"Resident memory: {_mb(peak)} at most, {_mb(resident)} after the query; weights {_mb(weights)} in "
        f"float32, ratio {peak / weights:.2f}. {len(loads)} processes, {first.threads} threads, {first.isa}.",
        "",
    ]
    return "\n".join(lines)


def _load(checkpoint: Path, instruction: str, settings: EngineSettings) -> Loading:
    given = {"checkpoint": str(checkpoint), "instruction": instruction, "settings": asdict(settings)}
    arguments = json.dumps({**given, "spawned_ns": time.monotonic_ns()})
    command = [sys.executable, "-m", _CHILD, arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or [f"ended with code {ended.returncode}"])[-1]
        raise BenchmarkError(f"loading {checkpoint}: {last}")
    return Loading(**json.loads(ended.stdout.splitlines()[-1]))


def _read(file: Path) -> None:
    """Bring a file into the operating system's cache."""
    if file.is_file():
        with file.open("rb") as opened:
            while opened.read(_READ_AT_ONCE):
                pass


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
