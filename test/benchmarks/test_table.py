from __future__ import annotations

from vla_simd_ros.benchmarks.table import markdown_table


def test_columns_are_aligned() -> None:
    assert markdown_table(("Name", "ms"), [("a", "1.5"), ("longer", "10.25")]) == [
        "| Name   |    ms |",
        "| ------ | ----: |",
        "| a      |   1.5 |",
        "| longer | 10.25 |",
    ]


def test_table_without_rows_is_its_header() -> None:
    assert markdown_table(("A", "B"), []) == ["| A   |   B |", "| --- | --: |"]
