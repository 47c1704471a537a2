from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.executors.base import InputError, check_inputs, check_order
from vla_simd_ros.graph.ir import DType, Lifetime, Tensor
from vla_simd_ros.graph.programs import Program

STATE = Tensor("state", (1, 6), DType.F32, Lifetime.QUERY, "")
TEXT = Tensor("text", (3, 4), DType.F32, Lifetime.EPISODE, "")
PROGRAM = Program(Lifetime.QUERY, (), {"state": STATE}, (TEXT,), (), {}, ())
GOOD = np.zeros((1, 6), np.float32)


def test_exact_inputs_pass() -> None:
    check_inputs(PROGRAM, {"state": GOOD})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"QUERY input 'state' is missing, expected \(1, 6\)"),
        ({"state": GOOD, "noise": GOOD}, "QUERY input 'noise' is unknown, expected: state"),
        ({"state": GOOD[0]}, r"QUERY input 'state': got \(6,\) float32, expected \(1, 6\) float32"),
        (
            {"state": GOOD.astype(np.float64)},
            r"QUERY input 'state': got \(1, 6\) float64, expected \(1, 6\) float32",
        ),
    ],
)
def test_others_are_named(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_inputs(PROGRAM, inputs)


def test_programs_run_in_the_order_of_their_lifetimes() -> None:
    check_order(PROGRAM, {Lifetime.EPISODE})
    with pytest.raises(RuntimeError, match="the QUERY program uses results of EPISODE, which has not run"):
        check_order(PROGRAM, set())
