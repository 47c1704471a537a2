"""Names in error messages."""

from __future__ import annotations

from vla_simd_ros.control.names import repeated, shown


def test_repeated_names() -> None:
    assert repeated(["a", "b", "a", "c", "b", "a"]) == ["a", "b"]
    assert repeated(["a", "b"]) == []


def test_a_long_list_is_cut() -> None:
    assert shown(["a", "b"]) == "['a', 'b']"
    many = shown([f"n{i}" for i in range(100_000)])
    assert many.startswith("['n0', ") and many.endswith(" and 99988 more")
    assert len(shown(["x" * 10_000])) < 80
