"""A run's log beside an earlier one's."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_torch

HEADER = "step,samples,loss,l1,kl,held_out_l1,learning_rate,seconds\n"


def log(path: Path, *rows: tuple[int, float, float]) -> Path:
    lines = [f"{samples // 8},{samples},{l1},{l1},,{held},1e-4,1\n" for samples, l1, held in rows]
    path.write_text(HEADER + "".join(lines))
    return path


def test_losses_are_told_for_the_samples_that_both_have_seen(tmp_path: Path) -> None:
    from vla_simd_ros.training.followed import followed

    own = log(tmp_path / "own.csv", (80, 0.5, 0.6), (120, 0.4, 0.5), (160, 0.33, float("nan")))
    earlier = log(tmp_path / "earlier.csv", (40, 0.9, 0.9), (80, 0.4, 0.6), (160, 0.3, 0.4))
    found = followed(own, earlier)
    assert [(each.samples, each.loss) for each in found] == [(80, "l1"), (80, "held_out_l1"), (160, "l1")]
    assert [each.difference for each in found] == pytest.approx([0.25, 0.0, 0.1])
    assert str(found[0]).split() == ["80", "l1", "0.5000", "0.4000", "+25.0%"]


def test_logs_of_other_samples_cannot_be_compared(tmp_path: Path) -> None:
    from vla_simd_ros.training.followed import followed
    from vla_simd_ros.training.recipe import RecipeError

    own, earlier = log(tmp_path / "own.csv", (80, 0.5, 0.6)), log(tmp_path / "earlier.csv", (40, 0.9, 0.9))
    with pytest.raises(RecipeError, match=r"earlier\.csv: tells losses after 40 samples, .*own\.csv"):
        followed(own, earlier)


@pytest.mark.parametrize("content", ["", "step,loss\n1,2\n", HEADER + "1,8,x,x,,x,x,x\n"])
def test_what_is_no_log_is_named(tmp_path: Path, content: str) -> None:
    from vla_simd_ros.training.followed import followed
    from vla_simd_ros.training.recipe import RecipeError

    own = log(tmp_path / "own.csv", (80, 0.5, 0.6))
    other = tmp_path / "other.csv"
    other.write_text(content)
    with pytest.raises(RecipeError, match=r"other\.csv"):
        followed(own, other)
    with pytest.raises(RecipeError, match=r"missing\.csv: is no log"):
        followed(own, tmp_path / "missing.csv")
