"""The compiled form of a policy: one program per lifetime, and the constants they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vla_simd_ros.graph.ir import Array, KeyValueState, LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.state import StateUse

RUNTIME_LIFETIMES = (Lifetime.EPISODE, Lifetime.QUERY, Lifetime.STEP)


@dataclass(frozen=True, eq=False)
class Program:
    """The operations that run when values of one lifetime are set anew, in execution order.

    ``inputs`` are the runtime inputs of this lifetime by name, whether or not an operation here reads
    them; ``uses`` the tensors that longer-lived runtime programs left behind (never constants);
    ``provides`` the tensors that must survive this program, because a shorter-lived program reads them
    or because they are outputs of the graph; ``outputs`` those of ``provides`` that are graph outputs,
    by name. ``constants`` are the tensors of lifetime ``PROCESS`` that the operations read. ``states`` are
    those that they append to or read; their versions are in none of the others.
    """

    lifetime: Lifetime
    ops: tuple[Op, ...]
    inputs: Mapping[str, Tensor]
    uses: tuple[Tensor, ...]
    provides: tuple[Tensor, ...]
    outputs: Mapping[str, Tensor]
    constants: tuple[Tensor, ...]
    states: tuple[StateUse, ...] = ()

    def own_inputs(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Its runtime inputs out of ``values``, which may hold those of other programs too."""
        return {name: values[name] for name in self.inputs}


@dataclass(frozen=True, eq=False)
class CompiledPolicy:
    """What an executor loads.

    ``programs`` always holds EPISODE, QUERY and STEP; a program without operations has an empty
    ``ops``. ``process`` is what is folded, kept for inspection: its results are in ``constants``.
    ``constants`` maps every tensor of lifetime PROCESS that a runtime program reads, or that is a graph
    output itself, to its value, in the tensor's dtype and shape, which is computed when it is asked for.
    Policies compiled with one fold cache share these objects, so that packed weights can be shared by
    identity. ``states`` are the first versions of what the programs append to.
    """

    programs: Mapping[Lifetime, Program]
    process: Program
    constants: Mapping[Tensor, LazyArray]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    states: Mapping[Tensor, KeyValueState] = field(default_factory=dict)

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants the runtime programs read."""
        return sum(tensor.nbytes for tensor in self.constants)
