"""The stages of a chunk against the total that was measured."""

from __future__ import annotations

import pytest

from vla_simd_ros.control.latency_budget import QUERY_STAGES, STAGES, latency_budget

MS = 1_000_000
CAPTURE = 1_700_000_000_123_456_789
QUERY = dict(zip(QUERY_STAGES, (3.0, 2.0, 5.0, 1.5, 60.0, 20.0, 7.0, 0.5, 1.0), strict=True))


def test_stages_that_follow_each_other_add_up_to_the_total() -> None:
    budget = latency_budget(QUERY, CAPTURE, 100.0, CAPTURE + 104 * MS, CAPTURE + 120 * MS)
    assert tuple(budget.stages) == STAGES
    assert budget.stages["delivery_ms"] == pytest.approx(4.0)
    assert budget.stages["command_ms"] == pytest.approx(16.0)
    assert budget.total_ms == pytest.approx(120.0)
    assert budget.unaccounted_ms == pytest.approx(0.0, abs=1e-6)


def test_time_that_no_stage_measured_is_unaccounted() -> None:
    budget = latency_budget(QUERY, CAPTURE, 130.0, CAPTURE + 134 * MS, CAPTURE + 150 * MS)
    assert budget.unaccounted_ms == pytest.approx(30.0)


def test_other_numbers_of_a_query_are_passed_over() -> None:
    budget = latency_budget({**QUERY, "total_ms": 89.0}, CAPTURE, 100.0, CAPTURE, CAPTURE)
    assert "total_ms" not in budget.stages
