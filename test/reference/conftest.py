"""Comparisons with the reference implementations themselves, in the environment that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Options, make_checkpoint
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.check import OutputReport, compare
from vla_simd_ros.fidelity.measure import bound_with

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.reference)


class Bench:
    """Makes a checkpoint and compares the engine's actions on it with a reference's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def checkpoint(self, policy: str, options: Options) -> Checkpoint:
        make_checkpoint(policy, self.folder, options)
        return load_checkpoint(self.folder)

    def compare(
        self,
        policy: str,
        options: Options,
        reference: str,
        instruction: str = "",
        observations: int = 2,
        num_steps: int | None = None,
    ) -> OutputReport:
        checkpoint = self.checkpoint(policy, options)
        cases = random_cases(checkpoint, observations, seed=0, num_steps=num_steps)
        bound = bound_with("exact", cases[0].num_steps is not None)
        report = compare(checkpoint, SimdExecutor(), reference, instruction, cases, print, bound)
        print(report)
        assert np.isfinite(report.largest)
        return report


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "checkpoint")


class Hollow(np.ndarray[Any, Any]):
    """Takes any change of its values, and holds none."""

    def __imul__(self, other: object) -> Hollow:
        return self

    def __getitem__(self, key: object) -> Hollow:
        return self

    def __setitem__(self, key: object, value: object) -> None:
        pass


@pytest.fixture
def hollow_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights have shapes and take no memory."""

    def hollow(self: WeightMaker, name: str, shape: tuple[int, ...], low: float, high: float) -> Hollow:
        return np.broadcast_to(np.float32(0), shape).view(Hollow)

    monkeypatch.setattr(WeightMaker, "draw", hollow)
