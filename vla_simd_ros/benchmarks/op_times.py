"""Times of the operations of a query on this engine: those of the query program, and of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vla_simd_ros.benchmarks.kernels import AloneTime
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.roofline import peak_now
from vla_simd_ros.benchmarks.work import NO_WORK, op_work
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.convolution import convolution_shape
from vla_simd_ros.executors.convolution_forms import FIXED_CONVOLUTIONS
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.executors.simd_executor import RecordTime, SimdExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.int8 import INT8, precision_of
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Op, Tensor
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES
from vla_simd_ros.graph.single_operation import program_of

_PLACES = 3
"""Of memory where an operation alone is repeated: attention 50x50 took up to 2.5 % longer in one of 24 than
in another."""


class ProfiledPolicy:
    """A policy on an engine of its own, for the times of its operations."""

    def __init__(self, policy: InstructedPolicy, settings: EngineSettings) -> None:
        self._policy, self._compiled = policy, policy.compiled
        executor = SimdExecutor(settings)
        self.isa = executor.isa
        self.threads = executor.threads
        self._settings = settings
        self._executable = executor.load(self._compiled)

    def profile(self, case: Case, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries, after one to warm up.

        All steps do the same: only the first one is run so often.
        """
        asked = _Asked(self._executable)
        self._policy.run(asked, case)
        times: list[OpTime] = []
        for lifetime in (Lifetime.QUERY, Lifetime.STEP):
            if runs := asked.inputs[lifetime]:
                records = self._executable.profile(lifetime, runs[0], queries)
                times += [_op_time(record, self.isa, lifetime, len(runs)) for record in records]
        return times

    def alone(self, name: str, repeats: int) -> list[AloneTime]:
        """Shortest time of the operation ``name``, repeated by itself on random operands, by each algorithm
        that can compute it."""
        programs = self._compiled.programs.values()
        op = next(op for program in programs for op in program.ops if op.output.name == name)
        found: dict[str, AloneTime] = {}
        for choice in _choices(op):
            settings = self._settings.but(**choice)
            algorithm = algorithm_of(SimdExecutor(settings).kernel_name(op), self.isa)
            if algorithm not in found:
                ms, peak = self._alone(settings, op, repeats)
                found[algorithm] = AloneTime(algorithm, op_work(op, algorithm), ms, peak)
        return list(found.values())

    def _alone(self, settings: EngineSettings, op: Op, repeats: int) -> tuple[float, float]:
        """The shortest time in ms, and the higher peak of those just before and after it."""
        single = program_of(op, self._compiled.constants)
        rng = np.random.default_rng(0)
        inputs = {
            name: _random(rng, tensor) for name, tensor in single.programs[Lifetime.QUERY].inputs.items()
        }
        executables = [SimdExecutor(settings).load(single) for _ in range(_PLACES)]
        for executable in executables:
            executable.run(Lifetime.QUERY, inputs)
        peaks = [peak_now(self.isa, self.threads)]
        times = []
        for repeat in range(repeats):
            times.append(executables[repeat % len(executables)].mean_ms(Lifetime.QUERY, inputs))
            peaks.append(peak_now(self.isa, self.threads))
        shortest = times.index(min(times))
        return times[shortest], max(peaks[shortest : shortest + 2])


def _choices(op: Op) -> list[dict[str, str]]:
    """Settings that compute ``op`` by each of its algorithms. Patches are stored only where Winograd's method
    competes: a convolution without it has no choice."""
    if op.kind != "conv2d":
        return [{"linear": name} for name in ("direct", "auto")]
    left_out = "flat" if convolution_shape(op) is None else ""
    return [{"convolution": name} for name in FIXED_CONVOLUTIONS if name != left_out]


class _Asked:
    """An executable, and what each of its programs is run with."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self.inputs: dict[Lifetime, list[Mapping[str, Array]]] = {each: [] for each in RUNTIME_LIFETIMES}

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.inputs[lifetime].append(inputs)
        return self._executable.run(lifetime, inputs)


def _random(rng: np.random.Generator, tensor: Tensor) -> Array:
    """Values for an operand: indices are zero, which every table has."""
    if tensor.dtype is DType.F32:
        return rng.standard_normal(tensor.shape, np.float32)
    return rng.integers(0, 256 if tensor.dtype is DType.U8 else 1, tensor.shape, tensor.dtype.numpy)


def algorithm_of(kernel: str, isa: str) -> str:
    """The algorithm in the name of a kernel, without instruction set and tile; "direct" for convolutions by
    no other method."""
    algorithm = kernel.partition(f"_{INT8}_")[0].partition(f"_{isa}")[0]
    return "direct" if algorithm == "conv2d" else algorithm


def _op_time(record: RecordTime, isa: str, lifetime: Lifetime, runs: int) -> OpTime:
    op = record.op
    copied = record.kernel == "copy"
    algorithm = algorithm_of(record.kernel, isa)
    return OpTime(
        name=op.output.name,
        kind="copy" if copied else op.kind,
        algorithm=algorithm,
        precision=precision_of(op.attrs),
        block=op.block,
        shape=shape_text(op),
        rows=op.output.shape[0] if op.kind != "conv2d" else op.output.size // op.output.shape[-1],
        cols=op.output.shape[-1],
        work=NO_WORK if copied else op_work(op, algorithm),
        ms=float(record.ms),
        program=lifetime.name.lower(),
        runs=runs,
    )


def shape_text(op: Op) -> str:
    """The sizes that set an operation's speed: rows x depth x columns of a linear layer, and so on."""
    shapes = [tensor.shape for tensor in op.operands()]
    if op.kind == "linear":
        rows, depth = shapes[0]
        return f"{rows}x{depth}x{op.output.shape[1]}"
    if op.kind == "conv2d":
        channels_out, kernel_h, kernel_w, _ = shapes[1]
        stride = op.attrs["stride"]
        window = f"{kernel_h}x{kernel_w}/{stride if isinstance(stride, int) else _join(stride)}"
        return f"{_join(shapes[0])} {window} {channels_out}"
    if op.kind == "max_pool2d":
        window = f"{op.attrs['kernel']}x{op.attrs['kernel']}/{op.attrs['stride']}"
        return f"{_join(shapes[0])} {window}"
    if op.kind == "attention":
        return f"{shapes[0][0]}x{shapes[1][0]} {op.attrs['heads']} heads of {_head_width(op)}"
    return _join(op.output.shape)


def _head_width(op: Op) -> int:
    return int(op.output.shape[1] // op.attrs["heads"])


def _join(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
