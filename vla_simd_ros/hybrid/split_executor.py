"""Two executors as one: of every policy, the first blocks run on one and the others on the other.

A policy is loaded for several places of the cut, so that the cut can move from one frame to the next. All
share the weights; activations and what the instruction sets are there once for each place. For another
instruction a place is readied when it is first used, so that the first answer waits for one place only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from vla_simd_ros.executors.base import Executable, Executor, Late, Runnable, Starting
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.partition import Partition, partition
from vla_simd_ros.graph.programs import CompiledPolicy


class SplitExecutor:
    """An executor of policies that have the blocks ``cuts``, after each of which they can be cut.

    As an executor like any other it runs the prefix, then the suffix, with the cut after ``present()``, the
    first of ``cuts`` where nothing is said. For stages that overlap see :class:`SplitExecutable`.
    """

    def __init__(
        self,
        prefix: Executor,
        suffix: Executor,
        cuts: Sequence[str],
        present: Callable[[], str] | None = None,
    ) -> None:
        self._sides = prefix, suffix
        self._cuts = tuple(cuts)
        self._present = present or (lambda: self._cuts[0])

    @property
    def isa(self) -> str:
        """What computes, the prefix first."""
        return " + ".join(side.isa for side in self._sides)

    @property
    def threads(self) -> int:
        """Threads of both together."""
        return sum(side.threads for side in self._sides)

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Executable:
        """Load both sides of every cut; where another policy has been loaded before, which ``beside`` is,
        each when it is first used. A policy of solver or decoding steps alone is loaded on the second side.

        Raises GraphError for a block after which it cannot be cut.
        """
        if not compiled.programs[Lifetime.QUERY].ops:
            return self._sides[1].load(compiled, beside)
        shared = beside.cuts if isinstance(beside, SplitExecutable) else {}
        cuts = {after: _Cut(compiled, after, *self._sides, shared.get(after)) for after in self._cuts}
        if not shared:
            for cut in cuts.values():
                cut.load()
        return SplitExecutable(cuts, self._present)

    def cancel(self) -> None:
        """End what runs on either side, and what is run later."""
        for side in self._sides:
            side.cancel()

    def resume(self) -> None:
        """Let both sides run again."""
        for side in self._sides:
            side.resume()


class SplitExecutable:
    """A policy that can be cut after each of ``cuts``, at present after ``present()``.

    :meth:`prefix` and :meth:`ready_prefix`, and :meth:`suffix` and :meth:`ready_suffix` with the steps that
    follow on :meth:`steps`, may run at the same time, each pair in one thread at a time; :meth:`run` only
    while neither does.
    """

    def __init__(self, cuts: Mapping[str, _Cut], present: Callable[[], str]) -> None:
        self.cuts = cuts
        self._at = present
        self._instruction: Mapping[str, Array] = {}

    def partition(self, after: str) -> Partition:
        """Both sides of a cut and what crosses it."""
        return self.cuts[after].partition

    def is_ready(self, after: str) -> bool:
        """Whether frames can be cut there without anything to be done before."""
        cut = self.cuts[after]
        return cut.prefix.ready and cut.suffix.ready

    def ready_prefix(self, after: str) -> dict[str, Array]:
        """Load what a cut's first side lacks, and run what depends on the instruction; the results, none
        where that has been done."""
        return self.cuts[after].prefix.make_ready(self._instruction)

    def ready_suffix(self, after: str) -> dict[str, Array]:
        """The same for the second side."""
        return self.cuts[after].suffix.make_ready(self._instruction)

    def prefix(self, after: str, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """The first side's part of the query program; ``values`` and what crosses the cut.

        What crosses may be on its way still: who looks it up waits for it.
        """
        self.ready_prefix(after)
        return _Crossing(values, self.cuts[after].prefix.start(Lifetime.QUERY, values))

    def suffix(self, after: str, values: Mapping[str, Array]) -> dict[str, Array]:
        """The second side's part, from what :meth:`prefix` returned: that and the program's results."""
        self.ready_suffix(after)
        return {**values, **self.cuts[after].suffix.run(Lifetime.QUERY, values)}

    def steps(self, after: str) -> Runnable:
        """What runs the solver or decoding steps of a cut."""
        return self.cuts[after].suffix.executable

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program, see :class:`vla_simd_ros.executors.base.Runnable`; what depends on the instruction
        is computed for the present cut, and for another one when that is first used."""
        after = self._at()
        if lifetime is Lifetime.STEP:
            return self.steps(after).run(lifetime, inputs)
        if lifetime is Lifetime.QUERY:
            return self.suffix(after, {**inputs, **self.prefix(after, inputs)})
        self._instruction = dict(inputs)
        for cut in self.cuts.values():
            cut.prefix.ready = cut.suffix.ready = False
        return self.ready_prefix(after) | self.ready_suffix(after)

    def tensor(self, tensor: Tensor) -> Array:
        """A copy of a tensor that a side provides; KeyError where neither does."""
        cut = self.cuts[self._at()]
        try:
            return cut.suffix.executable.tensor(tensor)
        except KeyError:
            return cut.prefix.executable.tensor(tensor)


class _Side:
    """One side's programs, loaded when they are first used, which take from the values what they read.

    ``make`` gives what the side has of the policy; the same side of a policy ``beside`` lends its memory.
    ``ready``: what depends on the present instruction has been run.
    """

    def __init__(self, make: Callable[[], CompiledPolicy], executor: Executor, beside: _Side | None) -> None:
        self._make = make
        self._executor = executor
        self._loaded: tuple[CompiledPolicy, Executable] | None = None
        # Not the side itself, which would keep the one beside it in its turn.
        self._lender: Executable | None = None
        if beside is not None:
            self._lender = beside._loaded[1] if beside._loaded else beside._lender
        self.ready = False

    def load(self) -> tuple[CompiledPolicy, Executable]:
        """Its programs, and what the executor made of them."""
        if self._loaded is None:
            compiled = self._make()
            self._loaded = compiled, self._executor.load(compiled, self._lender)
        return self._loaded

    @property
    def executable(self) -> Executable:
        return self.load()[1]

    def make_ready(self, instruction: Mapping[str, Array]) -> dict[str, Array]:
        """Run what depends on the instruction, where that has not been done."""
        if self.ready:
            return {}
        outputs = self.run(Lifetime.EPISODE, instruction)
        self.ready = True
        return outputs

    def run(self, lifetime: Lifetime, values: Mapping[str, Array]) -> dict[str, Array]:
        compiled, executable = self.load()
        return executable.run(lifetime, compiled.programs[lifetime].own_inputs(values))

    def start(self, lifetime: Lifetime, values: Mapping[str, Array]) -> Late:
        """The same, without waiting for results that are computed elsewhere and on their way."""
        compiled, executable = self.load()
        if not isinstance(executable, Starting):
            return _Ready(self.run(lifetime, values))
        return executable.start(lifetime, compiled.programs[lifetime].own_inputs(values))


class _Ready:
    """Results that are here."""

    def __init__(self, values: dict[str, Array]) -> None:
        self._values = values

    def wait(self) -> dict[str, Array]:
        return self._values


class _Crossing(Mapping[str, Array]):
    """The values of both sides, and what one of them has sent to the other."""

    def __init__(self, values: Mapping[str, Array], sent: Late) -> None:
        self._values = values
        self._sent = sent

    def _all(self) -> dict[str, Array]:
        return {**self._values, **self._sent.wait()}

    def __getitem__(self, name: str) -> Array:
        return self._values[name] if name in self._values else self._sent.wait()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class _Halves:
    """What is on either side of a cut, found when it is first asked for; both sides may ask first."""

    def __init__(self, compiled: CompiledPolicy, after: str) -> None:
        self._compiled = compiled
        self._after = after
        self._partition: Partition | None = None
        self._partitioning = threading.Lock()

    def get(self) -> Partition:
        with self._partitioning:
            if self._partition is None:
                self._partition = partition(self._compiled, self._after)
            return self._partition


class _Cut:
    """Both sides of one cut. Neither refers to it, so that memory is free as soon as nobody uses it."""

    def __init__(
        self, compiled: CompiledPolicy, after: str, prefix: Executor, suffix: Executor, beside: _Cut | None
    ) -> None:
        self._halves = halves = _Halves(compiled, after)
        self.prefix: _Side = _Side(lambda: halves.get().prefix, prefix, beside.prefix if beside else None)
        self.suffix: _Side = _Side(lambda: halves.get().suffix, suffix, beside.suffix if beside else None)

    @property
    def partition(self) -> Partition:
        return self._halves.get()

    def load(self) -> None:
        """Load both sides now."""
        self.prefix.load()
        self.suffix.load()
