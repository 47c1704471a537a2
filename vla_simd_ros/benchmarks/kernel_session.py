"""The kernels of a policy's query program on one core, measured and written up."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.backend import BenchmarkError, Setup
from vla_simd_ros.benchmarks.conditions import busy_warning, describe_machine
from vla_simd_ros.benchmarks.kernels import (
    TARGET_ROWS,
    TARGET_SHARE,
    Ceilings,
    Layer,
    below_target,
    ceilings_table,
    distinct_layers,
    layers_table,
)
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.observations import random_observations

Say = Callable[[str], None]

_REPEATS = 9
_PEAK_S = 0.3
_READ_BYTES = 256 << 20


def measure_kernels(
    folder: str | None, settings: EngineSettings, instruction: str, say: Say
) -> tuple[dict[str, Any], str]:
    """JSON values and Markdown of each distinct layer of the checkpoint in ``folder``, on one thread.

    Without a folder the layers are those of a random full-size IMPACT with two 480x640 cameras. Raises
    ``BenchmarkError`` for an instruction set that this machine has not.
    """
    from vla_simd_ros import _engine
    from vla_simd_ros.benchmarks.op_times import ProfiledPolicy

    isas: list[str] = _engine.available_isas()
    if settings.isa and settings.isa not in isas:
        raise BenchmarkError(
            f"instruction set {settings.isa!r} is not available here, expected {' or '.join(isas)}"
        )
    machine = describe_machine()
    if warning := busy_warning():
        say(f"warning: {warning}")
    with _checkpoint(folder, say) as path:
        say("preparing the policy")
        policy = ProfiledPolicy(Setup(str(path), instruction, settings))
        observation = random_observations(load_checkpoint(path), 1, 0)[0]
        say("measuring the core's ceilings")
        peaks = {name: float(_engine.fma_peak(name, _PEAK_S)) for name in isas}
        bandwidth = _engine.Engine(threads=1).read_bandwidth(_READ_BYTES) / 1e9
        say(f"{_REPEATS} queries on one core, then each distinct layer by itself")
        in_query = policy.profile(observation, _REPEATS)
        layers = distinct_layers(
            in_query,
            lambda name: policy.alone_ms(name, _REPEATS),
            peaks[policy.isa],
            _engine.Engine(threads=1, isa=policy.isa).tile[1],
        )
    ceilings = Ceilings(peaks, float(bandwidth))
    report = {
        "cpu": machine["cpu"],
        "isa": policy.isa,
        "threads": 1,
        "ceilings": asdict(ceilings),
        "layers": [_layer_json(layer) for layer in layers],
        "target": {"share_of_peak": TARGET_SHARE, "linear_layers_of_more_rows_than": TARGET_ROWS},
        "repeats": _REPEATS,
        "machine": machine,
    }
    return report, _text(machine, policy.isa, ceilings, layers)


def _layer_json(layer: Layer) -> dict[str, Any]:
    shares = {"share_alone": layer.share_alone, "share_in_query": layer.share_in_query}
    return {**asdict(layer), **shares, "reaches_target": layer.reaches_target}


def _text(machine: dict[str, Any], isa: str, ceilings: Ceilings, layers: list[Layer]) -> str:
    held = [layer for layer in layers if layer.reaches_target is not None]
    missed = below_target(layers)
    verdict = (
        f"{len(held) - len(missed)} of {len(held)} kinds of linear layer with more than {TARGET_ROWS} rows"
        f" reach {TARGET_SHARE:.0%} of the peak of one core when run alone;"
        " narrow ones, with fewer columns than the register tile, cannot fill it and are not held to that."
    )
    lines = [
        f"- CPU: {machine['cpu']}; ISA: {isa}; threads: 1; shortest time of {_REPEATS}",
        f"- load average before: {machine['load_average_before']}; {machine['date']}",
        f"- command: `{machine['command']}`",
        "",
        *ceilings_table(ceilings),
        "",
        *layers_table(layers),
        "",
        verdict,
        "",
    ]
    return "\n".join(lines)


@contextmanager
def _checkpoint(folder: str | None, say: Say) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    from vla_simd_ros.checkpoints.synthesis import make_checkpoint

    say("writing a random full-size IMPACT")
    with tempfile.TemporaryDirectory(prefix="vla_simd_bench_") as parent:
        path = Path(parent) / "impact"
        make_checkpoint("impact", path)
        yield path
