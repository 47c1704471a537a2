"""What every executor offers: load a compiled policy, then run its programs one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy, Program


class InputError(ValueError):
    """An input that the program does not accept: missing, unknown, or of the wrong shape or dtype."""


class Cancelled(RuntimeError):
    """A run that :meth:`Executor.cancel` stopped."""


class Runnable(Protocol):
    """Programs of a policy that can be run. Not safe for use by several threads at once."""

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one program.

        ``inputs`` holds exactly that program's runtime inputs, by name, in the declared shape and dtype.
        The programs of longer lifetimes that it builds on must have run before. Returns copies of the
        graph outputs that the program computes. Raises :class:`InputError`, :class:`Cancelled`, and
        RuntimeError where another program must run first.
        """
        ...


class Late(Protocol):
    """Results that may still be on their way from the device that computed them."""

    def wait(self) -> dict[str, Array]:
        """The results by name, once they are here."""
        ...


@runtime_checkable
class Starting(Runnable, Protocol):
    """Programs whose results can be waited for later, so that the next run overlaps with their transfer."""

    def start(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> Late:
        """As :meth:`run`, but returns when everything is computed, whether or not it is here."""
        ...

    def again(self, lifetime: Lifetime) -> None:
        """Compute a program that has run once more from the same inputs; returns when it is done."""
        ...

    def deliver(self, lifetime: Lifetime) -> Late:
        """Send the results of a program that has run once more."""
        ...


class Executable(Runnable, Protocol):
    """A policy loaded into an executor."""

    def tensor(self, tensor: Tensor) -> Array:
        """A copy of the current value of a tensor that a program provides, or of a constant.

        Raises KeyError for any other tensor, and for one whose program has not run yet.
        """
        ...


class Executor(Protocol):
    """A device or library that runs compiled policies; it may share weights between those it loaded."""

    @property
    def isa(self) -> str:
        """The instruction set or the library that computes."""
        ...

    @property
    def threads(self) -> int:
        """Threads that compute, the caller's included; 0 where the library decides."""
        ...

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Executable:
        """Prepare ``compiled`` for running. Policies compiled with one fold cache share their weights.

        The result may use the working memory of ``beside``, which this executor loaded before: then they
        take turns, and running one undoes all that the other has computed.
        """
        ...

    def cancel(self) -> None:
        """From any thread: the run in flight, and later ones until :meth:`resume`, end with
        :class:`Cancelled` as soon as they can."""
        ...

    def resume(self) -> None:
        """Let runs run again after :meth:`cancel`."""
        ...


@runtime_checkable
class Metered(Protocol):
    """An executor whose device counts the memory that is in use."""

    @property
    def peak_bytes(self) -> int | None:
        """The most so far; None where nobody counts."""
        ...


def check_order(program: Program, ran: Collection[Lifetime]) -> None:
    """Raise RuntimeError unless the programs that ``program`` builds on are among those that ``ran``."""
    missing = sorted({tensor.lifetime for tensor in program.uses}.difference(ran))
    if missing:
        names = ", ".join(lifetime.name for lifetime in missing)
        raise RuntimeError(f"the {program.lifetime.name} program uses results of {names}, which has not run")


def check_inputs(program: Program, inputs: Mapping[str, Array], floating: npt.DTypeLike = np.float32) -> None:
    """Raise :class:`InputError` unless ``inputs`` are exactly the program's, in shape and dtype.

    ``floating`` is what may stand in for float32: the precision of the executor, in which a program that is
    repeated is given what it returned.
    """
    for name in inputs:
        if name not in program.inputs:
            expected = ", ".join(program.inputs) or "none"
            raise InputError(f"{program.lifetime.name} input '{name}' is unknown, expected: {expected}")
    for name, tensor in program.inputs.items():
        if name not in inputs:
            raise InputError(f"{program.lifetime.name} input '{name}' is missing, expected {tensor.shape}")
        value = inputs[name]
        dtypes = (
            (np.dtype(np.float32), np.dtype(floating)) if tensor.dtype is DType.F32 else (tensor.dtype.numpy,)
        )
        if value.shape != tensor.shape or value.dtype not in dtypes:
            raise InputError(
                f"{program.lifetime.name} input '{name}': got {value.shape} {value.dtype}, "
                f"expected {tensor.shape} {tensor.dtype.value}"
            )
