"""Two executors as one: of every policy, the first blocks run on one and the others on the other.

A policy is loaded for several places of the cut at once, so that the cut can move from one frame to the next.
All share the weights; activations and what the instruction sets are there once for each place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vla_simd_ros.executors.base import Executable, Executor, Late, Runnable, Starting
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.partition import Partition, partition
from vla_simd_ros.graph.programs import CompiledPolicy


class SplitExecutor:
    """An executor of policies that have the blocks ``cuts``, after each of which they can be cut.

    As an executor like any other it runs the prefix, then the suffix, with the cut after the first of
    ``cuts``. For stages that overlap see :class:`SplitExecutable`.
    """

    def __init__(self, prefix: Executor, suffix: Executor, cuts: Sequence[str]) -> None:
        self._sides = prefix, suffix
        self._cuts = tuple(cuts)

    @property
    def isa(self) -> str:
        """What computes, the prefix first."""
        return " + ".join(side.isa for side in self._sides)

    @property
    def threads(self) -> int:
        """Threads of both together."""
        return sum(side.threads for side in self._sides)

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> SplitExecutable:
        """Load both sides of every cut. Raises GraphError for a block after which it cannot be cut."""
        shared = beside.cuts if isinstance(beside, SplitExecutable) else {}
        return SplitExecutable(
            {after: _Cut(compiled, after, *self._sides, shared.get(after)) for after in self._cuts}
        )

    def cancel(self) -> None:
        """End what runs on either side, and what is run later."""
        for side in self._sides:
            side.cancel()

    def resume(self) -> None:
        """Let both sides run again."""
        for side in self._sides:
            side.resume()


class SplitExecutable:
    """A policy that can be cut after each of ``cuts``.

    :meth:`prefix`, and :meth:`suffix` with the steps that follow on :meth:`steps`, may run at the same
    time, each in one thread at a time; :meth:`run` only while neither does.
    """

    def __init__(self, cuts: Mapping[str, _Cut]) -> None:
        self.cuts = cuts
        self._present = next(iter(cuts.values()))

    def partition(self, after: str) -> Partition:
        """Both sides of a cut and what crosses it."""
        return self.cuts[after].partition

    def prefix(self, after: str, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """The first side's part of the query program; ``values`` and what crosses the cut.

        What crosses may be on its way still: who looks it up waits for it.
        """
        return _Crossing(values, self.cuts[after].prefix.start(Lifetime.QUERY, values))

    def suffix(self, after: str, values: Mapping[str, Array]) -> dict[str, Array]:
        """The second side's part, from what :meth:`prefix` returned: that and the program's results."""
        return {**values, **self.cuts[after].suffix.run(Lifetime.QUERY, values)}

    def steps(self, after: str) -> Runnable:
        """What runs the solver steps of a cut."""
        return self.cuts[after].suffix.executable

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program, see :class:`vla_simd_ros.executors.base.Runnable`; what depends on the instruction
        is computed for every cut."""
        if lifetime is Lifetime.STEP:
            return self._present.suffix.executable.run(lifetime, inputs)
        if lifetime is Lifetime.QUERY:
            crossed = self._present.prefix.run(lifetime, inputs)
            return {**crossed, **self._present.suffix.run(lifetime, {**inputs, **crossed})}
        outputs: dict[str, Array] = {}
        for cut in self.cuts.values():
            for side in (cut.prefix, cut.suffix):
                outputs |= side.run(lifetime, inputs)
        return outputs

    def tensor(self, tensor: Tensor) -> Array:
        """A copy of a tensor that a side provides; KeyError where neither does."""
        try:
            return self._present.suffix.executable.tensor(tensor)
        except KeyError:
            return self._present.prefix.executable.tensor(tensor)


class _Side:
    """One side's programs, which take from the values what they read."""

    def __init__(self, compiled: CompiledPolicy, executor: Executor, beside: _Side | None) -> None:
        self._compiled = compiled
        self.executable: Executable = executor.load(compiled, beside.executable if beside else None)

    def run(self, lifetime: Lifetime, values: Mapping[str, Array]) -> dict[str, Array]:
        return self.executable.run(lifetime, self._compiled.programs[lifetime].own_inputs(values))

    def start(self, lifetime: Lifetime, values: Mapping[str, Array]) -> Late:
        """The same, without waiting for results that are computed elsewhere and on their way."""
        executable = self.executable
        if not isinstance(executable, Starting):
            return _Ready(self.run(lifetime, values))
        return executable.start(lifetime, self._compiled.programs[lifetime].own_inputs(values))


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


class _Cut:
    """Both sides of one cut, loaded."""

    def __init__(
        self, compiled: CompiledPolicy, after: str, prefix: Executor, suffix: Executor, beside: _Cut | None
    ) -> None:
        self.partition = partition(compiled, after)
        self.prefix: _Side = _Side(self.partition.prefix, prefix, beside.prefix if beside else None)
        self.suffix: _Side = _Side(self.partition.suffix, suffix, beside.suffix if beside else None)
