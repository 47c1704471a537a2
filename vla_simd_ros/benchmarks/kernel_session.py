"""The kernels of a policy's queries on one core, measured and written up."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.conditions import busy_warning, describe_machine
from vla_simd_ros.benchmarks.kernels import (
    TARGET_ROWS,
    TARGET_SHARE,
    Layer,
    below_target,
    distinct_layers,
    layers_table,
)
from vla_simd_ros.benchmarks.roofline import Roofline, measure_roofline, roofline_table
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import instruct

Say = Callable[[str], None]

_REPEATS = 9


@dataclass(frozen=True)
class KernelReport:
    """The layers of a query beside the ceilings of one core."""

    roofline: Roofline
    layers: list[Layer]
    machine: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "cpu": self.machine["cpu"],
            "isa": self.roofline.isa,
            "threads": self.roofline.threads,
            "ceilings": asdict(self.roofline),
            "layers": [_layer_json(layer) for layer in self.layers],
            "target": {"share_of_roofline": TARGET_SHARE, "products_of_more_rows_than": TARGET_ROWS},
            "repeats": _REPEATS,
            "machine": self.machine,
        }

    def to_markdown(self) -> str:
        """Conditions, ceilings, layers and verdict."""
        machine = self.machine
        lines = [
            f"- CPU: {machine['cpu']}; ISA: {self.roofline.isa}; threads: 1; shortest time of {_REPEATS}",
            f"- load average before: {machine['load_average_before']}; {machine['date']}",
            f"- command: `{machine['command']}`",
            "",
            *roofline_table(self.roofline),
            "",
            *layers_table(self.layers),
            "",
            _verdict(self.layers),
            "",
        ]
        return "\n".join(lines)


def measure_kernels(folder: str | None, settings: EngineSettings, instruction: str, say: Say) -> KernelReport:
    """Each distinct layer of the checkpoint in ``folder``, on one thread.

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
        checkpoint = load_checkpoint(path)
        policy = ProfiledPolicy(instruct(checkpoint, instruction), settings)
        (case,) = random_cases(checkpoint, 1, 0)
        say("measuring the core's ceilings")
        roofline = measure_roofline(policy.isa, policy.threads)
        say(f"{_REPEATS} queries on one core, then each distinct layer by itself")
        layers = distinct_layers(
            policy.profile(case, _REPEATS),
            lambda name: policy.alone(name, _REPEATS),
            roofline,
            _engine.Engine(threads=1, isa=policy.isa).tile[1],
        )
    return KernelReport(roofline, layers, machine)


def _layer_json(layer: Layer) -> dict[str, Any]:
    shares = {
        "share_alone": layer.share_alone,
        "share_with_exponentials": layer.share_with_exponentials,
        "share_in_query": layer.share_in_query,
    }
    return {**asdict(layer), **shares, "reaches_target": layer.reaches_target}


def _verdict(layers: list[Layer]) -> str:
    held = [layer for layer in layers if layer.reaches_target is not None]
    missed = below_target(layers)
    return (
        f"{len(held) - len(missed)} of {len(held)} kinds of product with more than {TARGET_ROWS} rows"
        f" reach {TARGET_SHARE:.0%} of their roofline when run alone. Not held to that: narrow ones, with"
        " fewer columns than the register tile, which cannot fill it, and convolutions that have a choice of"
        " algorithms."
    )


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
