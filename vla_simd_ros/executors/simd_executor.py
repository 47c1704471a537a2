"""The executor for CPUs: compiled policies on the C++ engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import vla_simd_ros._engine as _engine
from vla_simd_ros.executors.base import Cancelled, Executable, InputError, check_inputs, check_order
from vla_simd_ros.executors.convolution import ConvolutionChoice
from vla_simd_ros.executors.convolution_forms import format_layers, parse_layers
from vla_simd_ros.executors.convolution_timing import time_convolution
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.executors.simd_constants import EngineConstants
from vla_simd_ros.executors.simd_lowering import Lowered, Lowering, kernel_name
from vla_simd_ros.graph.ir import Array, Lifetime, Op, Tensor
from vla_simd_ros.graph.memory import plan_arena
from vla_simd_ros.graph.programs import CompiledPolicy, Program
from vla_simd_ros.graph.single_operation import program_of
from vla_simd_ros.graph.storage import Place, plan_storage

_HEADROOM = 1 / 16
"""Part of an arena left for what needs somewhat more: the programs for a longer instruction."""

_TIMED_RUNS = 6
_LEAST_TIMED_NS = 200_000


@dataclass(frozen=True)
class RecordTime:
    """One record of a program and its shortest time over the profiled runs.

    ``op`` is the operation that it computes; a concatenation or view that could not be avoided is a record
    for each part that is copied, with ``kernel`` "copy". ``kernel`` names algorithm and instruction set, and
    the register tile of matrix products.
    """

    op: Op
    kernel: str
    ms: float


class SimdExecutor:
    """One engine: kernels of one instruction set on a team of threads.

    Keyword arguments replace single ``settings``. Raises SettingError for those that do not exist or that
    this machine cannot have. Policies that share constants (the same objects) share their packed weights.
    """

    def __init__(self, settings: EngineSettings | None = None, **changes: Any) -> None:
        self.settings = (settings or EngineSettings()).but(**changes)
        """What the engine was made with."""
        self._engine = _make_engine(self.settings)
        self._constants = EngineConstants(self._engine, self.settings.weight_storage == "auto")
        timed = partial(time_convolution, self._engine)
        known = parse_layers(self.settings.convolution_layers)
        self._convolutions = ConvolutionChoice(self.settings.convolution, self._engine.tile, timed, known)

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return str(self._engine.isa)

    @property
    def int8_isa(self) -> str:
        """The variant of the INT8 kernels in use."""
        return str(self._engine.int8_isa)

    @property
    def threads(self) -> int:
        """Threads that compute, the caller's included."""
        return int(self._engine.threads)

    @property
    def convolution_layers(self) -> str:
        """The algorithms chosen so far, for the setting of this name."""
        return format_layers(self._convolutions.chosen)

    @property
    def weight_bytes(self) -> dict[str, int]:
        """Memory of the packed weights of all that was loaded, by the type that they are kept in."""
        return self._constants.weight_bytes()

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> SimdExecutable:
        """Pack the weights, plan the memory, lower the programs. Raises GraphError, MemoryError.

        Bringing new memory in takes longer than all else: an executable ``beside`` shares its own.
        """
        memory = beside.memory if isinstance(beside, SimdExecutable) else None
        return SimdExecutable(
            compiled, self._engine, self._constants, self._convolutions, self.settings, memory
        )

    def cancel(self) -> None:
        """From any thread: the run in flight, and later ones until :meth:`resume`, end with Cancelled."""
        self._engine.cancel()

    def resume(self) -> None:
        """Let runs run again after :meth:`cancel`."""
        self._engine.resume()

    def time_ms(self, op: Op) -> float:
        """The shortest time of an operation of float operands on its own, of random numbers and with
        constants of zero: the time does not depend on the values."""
        single = program_of(op)
        executable = self.load(single)
        rng = np.random.default_rng(0)
        inputs = {name: rng.standard_normal(t.shape, np.float32) for name, t in single.inputs.items()}
        return float(sum(record.ms for record in executable.profile(Lifetime.QUERY, inputs, _TIMED_RUNS)))

    def kernel_name(self, op: Op) -> str:
        """The kernel that computes ``op``; "view" for operations that compute nothing."""
        return kernel_name(self._engine, op, self._convolutions, self.settings)


def _make_engine(settings: EngineSettings) -> _engine.Engine:
    spin_us = settings.spin_us if settings.waiting == "active" else 0
    try:
        return _engine.Engine(
            settings.threads,
            settings.isa,
            settings.affinity,
            spin_us,
            settings.schedule,
            settings.parallel_cutoff,
            settings.block_rows,
            settings.threads_per_view,
        )
    except ValueError as error:
        raise SettingError(str(error)) from None


class SharedArena:
    """Memory for the activations of one executable at a time."""

    def __init__(self, nbytes: int) -> None:
        self.arena = _engine.Arena(nbytes)
        self.user: object = None
        """Whose values it holds."""


class SimdExecutable:
    """A policy on the engine: its arena and programs. Not safe for use by several threads at once."""

    def __init__(
        self,
        compiled: CompiledPolicy,
        engine: _engine.Engine,
        constants: EngineConstants,
        convolutions: ConvolutionChoice,
        settings: EngineSettings,
        memory: SharedArena | None,
    ) -> None:
        self._programs = compiled.programs
        self._values = compiled.constants
        ordered = [compiled.programs[lifetime] for lifetime in sorted(compiled.programs)]
        storage = plan_storage(ordered, engine.branching)
        plan = plan_arena(list(storage.buffers.values()))
        if memory is None or memory.arena.bytes < plan.nbytes:
            memory = SharedArena(round(plan.nbytes * (1 + _HEADROOM)))
        self.memory = memory
        self._mark = object()
        offsets = dict(zip(storage.buffers, plan.offsets, strict=True))
        arena = memory.arena
        lowering = Lowering(
            engine, arena, constants, convolutions, settings, storage, offsets, compiled.constants
        )
        self._lowered: dict[Lifetime, Lowered] = {p.lifetime: lowering.lower(p) for p in ordered}
        reachable = [t for p in ordered for t in (*p.inputs.values(), *p.provides)]
        self._views = {t: self._array(t, storage.places[t], offsets) for t in reachable}
        self._ran: set[Lifetime] = set()

    @property
    def arena_bytes(self) -> int:
        """Memory of all activations."""
        return int(self.memory.arena.bytes)

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one program; see :class:`vla_simd_ros.executors.base.Executable`.

        Also raises InputError for an index outside its table, RuntimeError where a program of longer
        lifetime must run first, and :class:`vla_simd_ros.executors.base.Cancelled`.
        """
        program = self._begin(lifetime, inputs)
        try:
            self._lowered[lifetime].program.run()
        except _engine.RunError as error:
            raise InputError(f"{lifetime.name}: {error}") from None
        except _engine.Cancelled as error:
            raise Cancelled(str(error)) from None
        self._ran.add(lifetime)
        return {name: self._views[tensor].copy() for name, tensor in program.outputs.items()}

    def profile(self, lifetime: Lifetime, inputs: Mapping[str, Array], repeats: int = 5) -> list[RecordTime]:
        """Run one program ``repeats`` times; the shortest time of each record."""
        lowered = self._lowered[lifetime]
        times = np.full((repeats, len(lowered.sources)), 0)
        for row in times:
            self._begin(lifetime, inputs)  # every time: inputs give their memory to what is computed later
            row[:] = lowered.program.profile()
        self._ran.add(lifetime)
        rows = zip(lowered.sources, lowered.kernels, times.min(axis=0), strict=True)
        return [RecordTime(op, "copy" if name == "view" else name, ns * 1e-6) for op, name, ns in rows]

    def mean_ms(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> float:
        """Time of a program by itself: the mean of as many runs as make it long enough to be told from
        reading the clock. Its inputs must outlast it."""
        program = self._lowered[lifetime].program
        self._begin(lifetime, inputs)
        runs = 1 + _LEAST_TIMED_NS // max(1, program.time(1))
        self._ran.add(lifetime)
        return float(program.time(runs) / runs * 1e-6)

    def tensor(self, tensor: Tensor) -> Array:
        """A copy of a provided tensor's current value, or of a constant; KeyError where there is none."""
        if tensor in self._values:
            return np.array(self._values[tensor].array())
        if self.memory.user is not self._mark or tensor.lifetime not in self._ran:
            raise KeyError(f"'{tensor.name}': the {tensor.lifetime.name} program has not run")
        return np.array(self._views[tensor])

    def _begin(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> Program:
        program = self._programs[lifetime]
        check_inputs(program, inputs)
        if self.memory.user is not self._mark:
            self._ran.clear()
        check_order(program, self._ran)
        self.memory.user = self._mark
        # What shorter-lived programs computed belongs to the values that are replaced now.
        self._ran = {other for other in self._ran if other < lifetime}
        for name, tensor in program.inputs.items():
            np.copyto(self._views[tensor], inputs[name])
        return program

    def _array(self, tensor: Tensor, place: Place, offsets: Mapping[Tensor, int]) -> Array:
        """A tensor's elements as an array over the arena."""
        item = tensor.dtype.itemsize
        shape = tensor.shape
        pitch = (place.ld if place.rows > 1 else place.cols) * item
        strides = [pitch * math.prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1)]
        offset = offsets[place.root] + place.offset * item
        array: Array = self.memory.arena.array(offset, shape, [*strides, item], tensor.dtype.value)
        return array
