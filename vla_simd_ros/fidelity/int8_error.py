"""What int8 does to the actions: group by group, and which layers cause it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.int8_choice import choose_int8
from vla_simd_ros.executors.settings import EngineSettings, keep_exact
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.check_tokens import spell
from vla_simd_ros.fidelity.measure import MAX_RMS, Distance, distance
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.fidelity.references import ENGINE, Reference, make_reference, own_graph
from vla_simd_ros.graph.int8_groups import Int8GroupError, int8_groups
from vla_simd_ros.graph.ir import Op, Tensor

Array = npt.NDArray[Any]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class GroupError:
    """Actions, or scores of action tokens, with ``layers`` layers in int8: how far they are from the engine's
    in fp32, and from the reference's."""

    group: str
    layers: int
    from_fp32: Distance
    from_reference: Distance


@dataclass(frozen=True)
class LayerError:
    """Actions of one observation with one layer in int8, from the engine's in fp32."""

    layer: str
    group: str
    error: Distance


@dataclass(frozen=True)
class Int8Report:
    """Each group alone, all of them together, the engine in fp32, and the layers, worst first; none where
    they were not asked for."""

    groups: list[GroupError]
    together: GroupError
    fp32: Distance
    layers: list[LayerError]
    max_rms: float

    @property
    def passed(self) -> bool:
        """Whether all groups together keep to the allowed error; not for values that are not finite."""
        rms = self.together.from_reference.rms
        return math.isfinite(rms) and rms <= self.max_rms

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


class _Engine:
    """Actions of one policy with different layers in int8."""

    def __init__(self, executor: Executor, policy: InstructedPolicy, cases: Sequence[Case]) -> None:
        self._executor = executor
        self._policy = policy
        self._cases = cases

    def actions(self, layers: Collection[Tensor], count: int | None = None) -> Array:
        policy = self._policy.with_int8(layers)
        executable = self._executor.load(policy.compiled)
        cases = self._cases[:count]
        if policy.decoder is not None:
            return np.concatenate([policy.scores(executable, case) for case in cases])
        return np.stack([policy.run(executable, case)["action"] for case in cases])


def int8_error(
    checkpoint: Checkpoint,
    executor: Executor,
    int8: str,
    reference: str,
    instruction: str,
    cases: Sequence[Case],
    progress: Progress,
    max_rms: float = MAX_RMS,
    single_layers: bool = True,
) -> Int8Report:
    """The error of each group that ``int8`` names, see :func:`choose_int8`, and of each of their layers.
    ``reference`` may be ENGINE too. Raises CheckpointError, Int8GroupError also where no group is
    left, UnavailableReferenceError."""
    policy = instruct(checkpoint, instruction)
    ops = [op for program in policy.compiled.programs.values() for op in program.ops]
    known = int8_groups(ops)
    groups = {name: known[name] for name in choose_int8(int8, ops, executor)}
    if not groups:
        raise Int8GroupError(f"int8 '{int8}' leaves everything in fp32, expected some of {', '.join(known)}")
    progress(f"reference {reference} in {'exact fp32' if reference == ENGINE else 'float64'}")
    model = _reference(reference, checkpoint, instruction, executor.threads)
    if policy.decoder is not None:
        spelled = spell(model, reference, cases)
        cases, exact = spelled.cases, np.concatenate(spelled.scores)
    else:
        exact = np.stack([model.predict(case) for case in cases])
    engine = _Engine(executor, policy, cases)
    progress("engine in fp32")
    single = engine.actions(())

    def error(name: str, layers: Sequence[Op]) -> GroupError:
        progress(f"engine with {name} in int8")
        actions = engine.actions({op.output for op in layers})
        return GroupError(name, len(layers), distance(actions, single), distance(actions, exact))

    return Int8Report(
        groups=[error(name, layers) for name, layers in groups.items()],
        together=error("together", [op for layers in groups.values() for op in layers]),
        fp32=distance(single, exact),
        layers=_layer_errors(engine, groups, progress) if single_layers else [],
        max_rms=max_rms,
    )


def _reference(name: str, checkpoint: Checkpoint, instruction: str, threads: int) -> Reference:
    if name != ENGINE:
        return make_reference(name, checkpoint, instruction, np.float64)
    from vla_simd_ros.executors.simd_executor import SimdExecutor

    executor = SimdExecutor(EngineSettings(**keep_exact({"threads": threads})))
    return own_graph(checkpoint, instruction, executor)


def _layer_errors(engine: _Engine, groups: dict[str, list[Op]], progress: Progress) -> list[LayerError]:
    """Each layer alone, on the first observation."""
    progress("engine with one layer after the other in int8")
    single = engine.actions((), 1)
    errors = [
        LayerError(op.output.name, name, distance(engine.actions({op.output}, 1), single))
        for name, layers in groups.items()
        for op in layers
    ]
    return sorted(errors, key=lambda layer: -layer.error.rms)
