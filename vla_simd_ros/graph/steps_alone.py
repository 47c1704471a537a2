"""The step program of a compiled policy without the others, for one more program over the same states."""

from __future__ import annotations

from dataclasses import replace

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy, Program


def steps_alone(compiled: CompiledPolicy) -> CompiledPolicy:
    """``compiled`` with its step program only.

    Raises GraphError where that reads more of what other programs compute than states.
    """
    step = compiled.programs[Lifetime.STEP]
    if step.uses:
        names = ", ".join(f"'{tensor.name}'" for tensor in step.uses)
        raise GraphError(f"the step program reads {names} of longer-lived ones, expected nothing but states")
    empty = {lifetime: Program(lifetime, (), {}, (), (), {}, ()) for lifetime in RUNTIME_LIFETIMES}
    return replace(
        compiled,
        programs={**empty, Lifetime.STEP: step},
        constants={tensor: compiled.constants[tensor] for tensor in step.constants},
        inputs=step.inputs,
        outputs=step.outputs,
        states={use.before: use.state for use in step.states},
    )
