"""Pictures and tasks in tables, and tables that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.tables import decode_picture, encode_picture, read_tasks, write_table, write_tasks


def test_pictures_are_the_same_again() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    encoded = encode_picture(picture)
    assert encoded.startswith(b"\x89PNG")
    np.testing.assert_array_equal(decode_picture(encoded, "here"), picture)


def test_no_picture() -> None:
    with pytest.raises(DatasetError, match="here: 4 bytes that are no picture, expected PNG or JPEG"):
        decode_picture(b"oops", "here")


def test_tasks_are_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    write_tasks(path, ["b", "a", "ü"])
    assert read_tasks(path) == ("b", "a", "ü")


def test_tasks_of_an_index_without_a_name_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    parquet.write_table(pyarrow.table({"task_index": [1, 0], "__index_level_0__": ["b", "a"]}), path)
    assert read_tasks(path) == ("a", "b")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"task_index": [0]}, r"got columns \['task_index'\], expected 'task' and 'task_index'"),
        ({"task_index": [0, 2], "task": ["a", "b"]}, r"got task numbers \[0, 2\], expected each of 0 to 1"),
    ],
)
def test_bad_tasks(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    path = tmp_path / "tasks.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(DatasetError, match=message):
        read_tasks(path)


def test_a_table_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep/table.parquet"
    write_table(path, [pyarrow.table({"a": [1]})])
    with pytest.raises(ValueError):
        write_table(path, [pyarrow.table({"a": [2]}), pyarrow.table({"b": [3]})])
    assert parquet.read_table(path).to_pydict() == {"a": [1]}
