"""A policy cut in two at one place, as two stages: the prefix on one executor, the suffix and all steps on
another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vla_simd_ros.graph.ir import Array
from vla_simd_ros.hybrid.split_executor import SplitExecutable
from vla_simd_ros.inference import Policy
from vla_simd_ros.request import Request

__all__ = ["Request", "SplitPolicy"]


class SplitPolicy:
    """``policy``, loaded with a SplitExecutor and instructed, cut after the block ``after``.

    :meth:`prefix` and :meth:`suffix` may run at the same time, on different requests, each in one thread at
    a time.
    """

    def __init__(self, policy: Policy, after: str) -> None:
        executable = policy.executable
        assert isinstance(executable, SplitExecutable)
        self._policy = policy
        self._executable = executable
        self._after = after

    def prefix(self, request: Request) -> Request:
        """The first side's part of what :meth:`vla_simd_ros.inference.Policy.request` made: with what crosses
        the cut."""
        return replace(request, values=self._executable.prefix(self._after, request.values))

    def suffix(self, request: Request) -> Array:
        """The second side's part, from what :meth:`prefix` returned: float32 [chunk_size, action_dim] in
        robot units."""
        outputs = self._executable.suffix(self._after, request.values)
        actions, _ = self._policy.actions(self._executable.steps(self._after), request, outputs)
        return np.asarray(actions, np.float32)
