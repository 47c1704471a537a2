"""The time of a pass against the number of tokens in it, for each form of weights: of a language model, or of
a policy that spells its actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.roofline import measure_roofline
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.gguf import GgufFile
from vla_simd_ros.decoding.cached_model import SIZES
from vla_simd_ros.executors.base import Executable, Runnable
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.blocks import BLOCK_BYTES, BLOCK_VALUES, Blocks
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.int8 import INT8
from vla_simd_ros.graph.int8_groups import ALL
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.language.gguf_llama import GgufLlamaWeights, read_config
from vla_simd_ros.language.llama_model import LlamaModel
from vla_simd_ros.loaded_programs import LoadedPrograms
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.policies.weights import TensorSource, Weights
from vla_simd_ros.tuning.pass_costs import PassCosts, measure_passes

Say = Callable[[str], None]

STORED = "stored"
FORMS = (STORED, "float32", "bfloat16", *BLOCK_BYTES)
"""As in the file; and all matrices of the model in one form, of other values."""

KEPT = 128
"""Tokens before a pass of a language model, whose keys and values it reads."""

_REPEATS = 9
_FROM_MEMORY = 1 << 28


@dataclass(frozen=True)
class FormPasses:
    """Passes with weights in one form: their times, and the bytes of the weights that each reads."""

    costs: PassCosts
    weight_bytes: int


@dataclass(frozen=True)
class PassReport:
    """Passes by the form of weights, behind ``kept`` tokens, beside the ceilings of the machine. ``flops``
    are those of one token."""

    forms: Mapping[str, FormPasses]
    kept: int
    flops: float
    isa: str
    threads: int
    read_gb_per_s: float
    peak_gflops: float

    def reading_ms(self, form: str) -> float:
        """The time in which the weights can be read from memory: no pass is faster."""
        return self.forms[form].weight_bytes / self.read_gb_per_s / 1e6

    def multiplying_ms(self, tokens: int) -> float:
        """The time in which a pass can be multiplied in fp32."""
        return self.flops * tokens / self.peak_gflops / 1e6


class SameSizes:
    """Weights of the sizes that are asked for, all in one form; the values do not matter for the time."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._shapes: dict[str, tuple[int, ...]] = {}

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """See :class:`vla_simd_ros.policies.weights.BlockSource`, for this and the others."""
        assert expected is not None
        self._shapes[name] = expected
        return expected

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        # The first is no bfloat16 value.
        small = 1e-3 if self._form == "float32" else 2.0**-10
        sizes = self._shapes[name]
        return np.full(sizes, small if len(sizes) == 2 else 1.0, np.float32)

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self.tensor(name)[start:stop]

    def mapped(self, name: str) -> Array:
        return self.tensor(name)

    def check_mapped(self) -> None:
        pass

    def block_form(self, name: str) -> str | None:
        sizes = self._shapes[name]
        whole = len(sizes) == 2 and sizes[1] % BLOCK_VALUES == 0
        return self._form if self._form in BLOCK_BYTES and whole else None

    def blocks(self, name: str) -> Blocks | None:
        form = self.block_form(name)
        if form is None:
            return None
        rows, cols = self._shapes[name]
        data = np.full((rows, cols // BLOCK_VALUES, BLOCK_BYTES[form]), 0x35, np.uint8)
        data[:, :, :2] = np.array([2.0**-10], "<f2").view(np.uint8)
        if form == "q4_1":
            data[:, :, 2:4] = 0
        return Blocks(form, data.reshape(rows, -1))


class Passes:
    """Step programs for every size of a pass, behind ``kept`` tokens; ``load`` has those of a size."""

    def __init__(self, load: Callable[[int], Runnable], kept: int) -> None:
        self._programs = {tokens: load(tokens) for tokens in SIZES}
        self._kept = kept

    def ms(self, tokens: int) -> float:
        """Milliseconds of a pass."""
        positions = np.arange(self._kept, self._kept + tokens, dtype=np.int32)
        # Any token will do; every vocabulary has the first one.
        inputs = {"step_ids": np.zeros(tokens, np.int32), "step_positions": positions}
        program = self._programs[tokens]
        start = time.perf_counter()
        program.run(Lifetime.STEP, inputs)
        return 1e3 * (time.perf_counter() - start)


def measure_forms(path: Path, settings: EngineSettings, say: Say) -> PassReport:
    """Measure all of :data:`FORMS`. Raises CheckpointError for a file that is no such model."""
    file = GgufFile(path)
    config = read_config(file, KEPT + SIZES[-1])
    forms = {}
    for form in FORMS:
        say(f"passes of weights in {form}")
        source: TensorSource = GgufLlamaWeights(file) if form == STORED else SameSizes(form)
        executor = SimdExecutor(settings)
        forms[form] = _measured(_passes_of(LlamaModel(config, Weights(source)), executor), KEPT, executor)
    return _report(forms, KEPT, 2.0 * _matrix_values(file, config.tied), executor)


def measure_policy(checkpoint: Checkpoint, settings: EngineSettings, say: Say) -> PassReport:
    """Measure a policy that spells its actions, behind the prefix of its longest instruction: its layers as
    they are stored, and in int8. Raises BenchmarkError for another policy."""
    policy = define_policy(checkpoint)
    spelled = policy.action_tokens
    if spelled is None:
        raise BenchmarkError(
            f"--passes measures what decodes tokens, and a policy '{policy.spec.type}' computes its actions "
            "directly; expected a GGUF file or a policy of action tokens"
        )
    kept = spelled.prefix_rows(policy.spec.max_instruction_tokens or None)
    forms = {}
    for form, int8 in ((STORED, ""), (INT8, ALL)):
        say(f"passes of weights {'as stored' if form == STORED else f'in {form}'}")
        executor = SimdExecutor(settings)
        programs = LoadedPrograms(policy, executor, int8)
        forms[form] = _measured(programs.passes, kept, executor)
    graph = compile_graph(policy.build(policy.spec.max_instruction_tokens or None), FoldCache())
    layers = [op.inputs[1] for op in graph.programs[Lifetime.STEP].ops if op.kind == "linear"]
    return _report(forms, kept, 2.0 * sum(weight.size for weight in layers if weight is not None), executor)


def _passes_of(model: LlamaModel, executor: SimdExecutor) -> Callable[[int], Runnable]:
    cache = FoldCache()
    loaded: list[Executable] = []

    def load(tokens: int) -> Runnable:
        compiled = compile_graph(model.build(tokens), cache)
        loaded.append(executor.load(compiled, loaded[-1] if loaded else None))
        return loaded[-1]

    return load


def _measured(load: Callable[[int], Runnable], kept: int, executor: SimdExecutor) -> FormPasses:
    costs = measure_passes(Passes(load, kept).ms, SIZES, _REPEATS)
    return FormPasses(costs, sum(executor.weight_bytes.values()))


def _report(forms: Mapping[str, FormPasses], kept: int, flops: float, executor: SimdExecutor) -> PassReport:
    roofline = measure_roofline(executor.isa, executor.threads)
    return PassReport(
        forms=forms,
        kept=kept,
        flops=flops,
        isa=executor.isa,
        threads=executor.threads,
        read_gb_per_s=roofline.bandwidth[_FROM_MEMORY],
        peak_gflops=roofline.peak_gflops,
    )


def _matrix_values(file: GgufFile, tied: bool) -> int:
    """The weights that a token is multiplied with: all matrices but a table that is only looked up in."""
    shapes = {name: file.shape(name) for name in file.names}
    if not tied:
        del shapes["token_embd.weight"]
    return sum(shape[0] * shape[1] for shape in shapes.values() if len(shape) == 2)


def passes_json(report: PassReport, model: Mapping[str, str], machine: Mapping[str, Any]) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "model": dict(model),
        "isa": report.isa,
        "threads": report.threads,
        "kept_tokens": report.kept,
        "repeats": _REPEATS,
        "pass_ms": {form: passes.costs.to_json() for form, passes in report.forms.items()},
        "weight_bytes": {form: passes.weight_bytes for form, passes in report.forms.items()},
        "bounds": {
            "read_gb_per_s": report.read_gb_per_s,
            "peak_gflops": report.peak_gflops,
            "reading_ms": {form: report.reading_ms(form) for form in report.forms},
            "multiplying_ms": {str(tokens): report.multiplying_ms(tokens) for tokens in SIZES},
        },
        "machine": dict(machine),
    }


def passes_markdown(report: PassReport, model: Mapping[str, str], machine: Mapping[str, Any]) -> str:
    """The conditions as a list, then the times and how many tokens a pass must fix; ends with a newline."""
    header = ("Weights", "MiB", "read in ms", *(f"{tokens}" for tokens in SIZES))
    times, fixed = [], []
    for form, passes in report.forms.items():
        size = f"{passes.weight_bytes / (1 << 20):.0f}"
        ms = [f"{passes.costs.ms(tokens):.2f}" for tokens in SIZES]
        times.append((form, size, f"{report.reading_ms(form):.2f}", *ms))
        fixed.append((form, *(f"{passes.costs.break_even(tokens):.2f}" for tokens in SIZES[1:])))
    bound = [f"{report.multiplying_ms(tokens):.2f}" for tokens in SIZES]
    times.append(("multiply-adds at their peak", "", "", *bound))
    return "\n".join(
        [
            f"- model: {model['file']}; {report.kept} tokens before each pass",
            f"- CPU: {machine['cpu']}; ISA: {report.isa}; threads: {report.threads};"
            f" {report.read_gb_per_s:.1f} GB/s read, {report.peak_gflops:.0f} GFLOP/s;"
            f" shortest of {_REPEATS} times",
            f"- load average before: {machine['load_average_before']}; {machine['date']}",
            f"- command: `{machine['command']}`",
            "",
            "Milliseconds of a pass by the number of its tokens:",
            "",
            *markdown_table(header, times),
            "",
            "How many tokens a pass must fix to be as fast as one token after the other:",
            "",
            *markdown_table(("Weights", *(f"{tokens}" for tokens in SIZES[1:])), fixed),
            "",
        ]
    )
