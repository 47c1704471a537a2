from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.benchmarks.agreement import TOLERANCES, DisagreementError, check_agreement, departure

FP32 = dict.fromkeys(("a", "b", "good", "bad", "worse"), TOLERANCES["fp32"])
REFERENCE = np.array([[1.0, -2.0], [0.5, 0.0]])


def test_departure_is_relative_to_the_largest_action() -> None:
    actions = REFERENCE.astype(np.float32)
    actions[1, 1] = 0.02
    assert departure(actions, REFERENCE) == pytest.approx(0.01)
    assert departure(REFERENCE.astype(np.float32), REFERENCE) == 0.0


@pytest.mark.parametrize(
    "actions",
    [np.zeros((2, 3)), np.zeros(4), np.array([[1.0, -2.0], [0.5, np.nan]]), np.full((2, 2), np.inf)],
    ids=["other width", "flat", "nan", "inf"],
)
def test_what_cannot_be_compared_departs_without_bound(actions: np.ndarray) -> None:
    assert departure(actions, REFERENCE) == float("inf")


def test_a_reference_of_zeros_proves_nothing() -> None:
    assert departure(np.zeros((2, 2)), np.zeros((2, 2))) == float("inf")


def test_the_worst_observation_counts() -> None:
    off = REFERENCE + np.array([[0.0, 1e-4], [0.0, 0.0]])
    worst = check_agreement(
        {"a": [REFERENCE, off], "b": [REFERENCE, REFERENCE]}, [REFERENCE, REFERENCE], FP32
    )
    assert worst == {"a": pytest.approx(5e-5), "b": 0.0}


def test_the_runner_that_disagrees_is_named_and_no_other() -> None:
    off = REFERENCE + 0.01
    with pytest.raises(DisagreementError) as caught:
        check_agreement({"good": [REFERENCE], "bad": [off], "worse": [off * 2]}, [REFERENCE], FP32)
    message = str(caught.value)
    assert "bad departs by 5.00e-03" in message and "worse" in message
    assert "good" not in message


def test_nan_actions_are_a_disagreement() -> None:
    with pytest.raises(DisagreementError, match="a departs by inf"):
        check_agreement({"a": [REFERENCE * np.nan]}, [REFERENCE], FP32)


def test_int8_may_depart_further_but_not_without_bound() -> None:
    off = REFERENCE + 0.1
    tolerances = {"a": TOLERANCES["int8"], "b": TOLERANCES["fp32"]}
    assert check_agreement({"a": [off]}, [REFERENCE], tolerances) == {"a": pytest.approx(0.05)}
    with pytest.raises(DisagreementError, match=r"b departs by 5\.00e-02 .*, expected at most 1e-04"):
        check_agreement({"a": [off], "b": [off]}, [REFERENCE], tolerances)
    with pytest.raises(DisagreementError, match="expected at most 2e-01"):
        check_agreement({"a": [REFERENCE + 1]}, [REFERENCE], tolerances)
