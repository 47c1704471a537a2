from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.references import make_reference, references_for


def test_the_most_independent_reference_comes_first() -> None:
    assert references_for("act") == ("lerobot", "float64")
    assert references_for("impact") == ("torch", "float64")
    assert references_for("another") == ("float64",)


def test_numpy_in_two_precisions(blind: Checkpoint) -> None:
    (case,) = random_cases(blind, 1, seed=0)
    single, double = (
        make_reference("float64", blind, "", dtype).predict(case) for dtype in (np.float32, np.float64)
    )

    assert single.dtype == np.float32
    assert double.dtype == np.float64
    assert 0 < distance(single, double).relative < 2e-6


def test_a_reference_that_the_policy_does_not_have(blind: Checkpoint) -> None:
    with pytest.raises(
        UnavailableReferenceError,
        match="no reference 'torch' for policy 'act', expected one of lerobot, float64",
    ):
        make_reference("torch", blind, "", np.float32)


def test_lerobot_that_is_not_installed(blind: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_lerobot(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in ("torch", "lerobot"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_lerobot)

    with pytest.raises(UnavailableReferenceError, match=r"LeRobot cannot be imported.*pip install lerobot"):
        make_reference("lerobot", blind, "", np.float32)
