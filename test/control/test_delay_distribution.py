"""Distributions of delays: what they draw, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.control.delay_distribution import delay_distribution
from vla_simd_ros.control.schedule import SupplyError


def draw(text: str, count: int = 20_000) -> np.ndarray:
    return delay_distribution(text).draw(np.random.default_rng(5), count)


def test_a_fixed_delay() -> None:
    assert draw("fixed:200", 3).tolist() == [0.2, 0.2, 0.2]
    assert draw("fixed:0", 2).tolist() == [0.0, 0.0]


def test_a_lognormal_delay_has_its_median_and_spread() -> None:
    drawn = draw("lognormal:150,0.3")
    assert np.median(drawn) == pytest.approx(0.150, rel=0.01)
    assert np.std(np.log(drawn)) == pytest.approx(0.3, rel=0.02)


def test_no_delay_is_longer_than_a_minute() -> None:
    assert draw("lognormal:50000,2").max() == 60.0


def test_a_trace_is_drawn_from_with_its_shares(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("latency_ms\n100\n100\n100\n400\n")
    drawn = draw(f"trace:{trace}")
    assert set(drawn.tolist()) == {0.1, 0.4}
    assert np.mean(drawn == 0.4) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    "text",
    [
        *("", "fixed", "fixed:", "fixed:-1", "fixed:nan", "fixed:60001", "fixed:1,2", "normal:5"),
        *(
            "lognormal:100",
            "lognormal:0,0.3",
            "lognormal:100,-1",
            "lognormal:100,4",
            "lognormal:a,b",
            "trace:",
        ),
    ],
)
def test_what_names_no_distribution_is_refused(text: str) -> None:
    with pytest.raises(SupplyError, match=r"no distribution of delays, expected fixed:MS"):
        delay_distribution(text)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SupplyError, match="No such file"):
        delay_distribution(f"trace:{tmp_path / 'none.csv'}")
