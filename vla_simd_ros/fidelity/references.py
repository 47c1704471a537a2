"""Reference implementations, each runnable in float32 and in float64 on raw observations.

The independent references of a policy are the modules ``<reference>_<policy>.py`` of this folder, for example
``lerobot_act.py``; one that is added there is found by its name. Such a module defines

    def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> Reference

and imports PyTorch, LeRobot and the like only when that is called, raising UnavailableReferenceError where
they are not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.policies.registry import define_policy

Array = npt.NDArray[Any]
FLOAT64 = "float64"
INDEPENDENT = ("lerobot", "original", "torch")
"""Kinds of independent references, the most independent first: LeRobot's own policy, what the policy's
authors published, this package's network in PyTorch."""
REFERENCES = (*INDEPENDENT, FLOAT64)
ENGINE = "engine"
"""What int8 can be compared with too: this engine in fp32, as exact as that is. It takes as long as a query,
and is nearer to float64 than int8 is by orders of magnitude."""


class Reference(Protocol):
    """A policy's reference implementation at one precision, with its instruction."""

    def predict(self, case: Case) -> Array:
        """Actions ``[chunk, A]`` in robot units, in the reference's precision.

        A policy that iterates begins with ``case.noise`` and takes ``case.num_steps`` steps; both are always
        there. ``case.observation`` is raw: uint8 frames, vectors in robot units.
        """
        ...


@runtime_checkable
class Speller(Reference, Protocol):
    """A reference of a policy that spells its actions in tokens."""

    def tokens(self, case: Case) -> list[int]:
        """The tokens of the chunk, each the most likely one behind those before it."""
        ...

    def scores(self, case: Case, tokens: list[int]) -> Array:
        """Scores of what follows the prefix and each of ``tokens``, ``[len(tokens) + 1, vocabulary]``."""
        ...


class _OwnGraph:
    """See :func:`own_graph`."""

    def __init__(self, policy: InstructedPolicy, executor: Executor) -> None:
        self._policy = policy
        self._executable = executor.load(policy.compiled)

    def predict(self, case: Case) -> Array:
        return self._policy.run(self._executable, case)["action"]


class _OwnSpeller(_OwnGraph):
    """The same for a policy that spells its actions."""

    def tokens(self, case: Case) -> list[int]:
        return [int(token) for token in self._policy.scores(self._executable, case).argmax(axis=1)]

    def scores(self, case: Case, tokens: list[int]) -> Array:
        return self._policy.scores(self._executable, replace(case, tokens=tuple(tokens)))


def make_reference(
    name: str, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]
) -> Reference:
    """Reference ``name`` of the checkpoint's policy, computing in ``dtype``.

    Raises `UnavailableReferenceError` if it does not know the policy or is not installed.
    """
    if name not in references_for(checkpoint.type):
        known = ", ".join(references_for(checkpoint.type))
        raise UnavailableReferenceError(
            f"there is no reference '{name}' for policy '{checkpoint.type}', expected one of {known}"
        )
    if name == FLOAT64:
        return own_graph(checkpoint, instruction, ReferenceExecutor(dtype))
    module = importlib.import_module(_module(name, checkpoint.type))
    reference: Reference = module.reference(checkpoint, instruction, dtype)
    return reference


def own_graph(checkpoint: Checkpoint, instruction: str, executor: Executor) -> Reference:
    """The package's own graph on an executor: checks how it is computed, not the description of the
    network."""
    spells = define_policy(checkpoint).action_tokens is not None
    return (_OwnSpeller if spells else _OwnGraph)(instruct(checkpoint, instruction), executor)


def references_for(policy: str) -> Sequence[str]:
    """References of a policy, the most independent first."""
    return (*(name for name in INDEPENDENT if find_spec(_module(name, policy))), FLOAT64)


def _module(name: str, policy: str) -> str:
    return f"{__package__}.{name}_{policy}"
