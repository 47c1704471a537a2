from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.tensors import TensorFile

VALUES = np.array([[0.0, -1.5, 3.25], [1e-3, 65504.0, -2.0]], np.float32)


def write(path: Path, **tensors: np.ndarray[Any, Any]) -> Path:
    save_file(tensors, path)
    return path


def write_raw(path: Path, stored: str, shape: list[int], data: bytes, pad: int = 0) -> Path:
    """One tensor 'x' of any stored type; ``pad`` spaces misalign its data."""
    header = json.dumps({"x": {"dtype": stored, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-len(header) % 8 + pad)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def test_each_access_reads_the_file(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES))

    np.testing.assert_array_equal(file["x"], VALUES)
    assert file["x"] is not file["x"]


def test_a_tensor_without_values(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=np.zeros((0, 3), np.float32)))

    assert file["x"].shape == file.mapped("x").shape == (0, 3)


def test_rows_are_read_alone(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    values[3] = np.nan
    file = TensorFile(write(tmp_path / "a.safetensors", x=values))

    np.testing.assert_array_equal(file.rows("x", 1, 3), values[1:3])
    with pytest.raises(
        CheckpointError, match=r"'x' has 6 NaN or infinite values of 24, first at \[3, 0, 0\]"
    ):
        file.rows("x", 2, 4)


def test_a_large_table_is_mapped(tmp_path: Path) -> None:
    table = np.arange(3 << 20, dtype=np.float32).reshape(-1, 64)
    file = TensorFile(write(tmp_path / "a.safetensors", x=table))

    mapped = file.mapped("x")
    np.testing.assert_array_equal(mapped, table)
    assert not mapped.flags.owndata and not mapped.flags.writeable
    assert type(mapped) is np.ndarray
    file.check_mapped()


def test_a_table_is_checked_before_it_is_mapped(tmp_path: Path) -> None:
    table = np.zeros((2 << 20,), np.float32)
    table[-1] = np.inf
    file = TensorFile(write(tmp_path / "a.safetensors", x=table))

    with pytest.raises(
        CheckpointError, match=rf"1 NaN or infinite values of {2 << 20}, first at \[{(2 << 20) - 1}\]"
    ):
        file.mapped("x")


@pytest.mark.parametrize(("stored", "pad"), [("F32", 3), ("F16", 0)])
def test_what_cannot_be_used_where_it_is_stored_is_read(tmp_path: Path, stored: str, pad: int) -> None:
    data = VALUES.astype(np.float16 if stored == "F16" else np.float32).tobytes()
    file = TensorFile(write_raw(tmp_path / "a.safetensors", stored, [2, 3], data, pad))

    assert file.mapped("x").flags.owndata or file.mapped("x").base.flags.owndata
    assert file.mapped("x").flags.aligned
    (tmp_path / "a.safetensors").write_bytes(b"")
    file.check_mapped()


@pytest.mark.parametrize("change", ["truncated", "written over"])
def test_a_file_that_changed_since_it_was_opened(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a.safetensors", x=VALUES)
    file = TensorFile(path)
    file.mapped("x")
    if change == "truncated":
        os.truncate(path, path.stat().st_size - 4)
    else:
        path.write_bytes(path.read_bytes())
        os.utime(path, ns=(0, 0))

    for use in (lambda: file["x"], lambda: file.rows("x", 0, 1), lambda: file.mapped("x"), file.check_mapped):
        with pytest.raises(CheckpointError, match=r"a\.safetensors: was changed since it was opened"):
            use()


def test_a_file_that_ends_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES))
    monkeypatch.setattr(os, "preadv", lambda *_: 0)

    with pytest.raises(CheckpointError, match=r"ends at byte \d+, was longer when it was opened"):
        file["x"]


def test_another_file_in_its_place_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", x=VALUES)
    file = TensorFile(path)
    mapped = file.mapped("x")
    write(tmp_path / "b.safetensors", x=-VALUES).replace(path)

    file.check_mapped()
    np.testing.assert_array_equal(mapped, VALUES)
    np.testing.assert_array_equal(file["x"], VALUES)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floats_become_float32(tmp_path: Path, kind: type) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES.astype(kind)))

    assert file["x"].dtype == np.float32
    np.testing.assert_array_equal(file["x"], VALUES.astype(kind).astype(np.float32))


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    upper = (VALUES.view(np.uint32) >> 16).astype("<u2")
    file = TensorFile(write_raw(tmp_path / "a.safetensors", "BF16", [2, 3], upper.tobytes()))

    np.testing.assert_array_equal(file.tensor("x", (2, 3)), (upper.astype(np.uint32) << 16).view(np.float32))


def test_misaligned_data_is_copied(tmp_path: Path) -> None:
    file = TensorFile(write_raw(tmp_path / "a.safetensors", "F32", [2, 3], VALUES.tobytes(), pad=3))

    assert file["x"].flags.aligned
    np.testing.assert_array_equal(file["x"], VALUES)


def test_integers_keep_their_type(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", n=np.array(7, np.int64)))

    assert file["n"].dtype == np.int64
    assert file["n"].shape == ()
    with pytest.raises(CheckpointError, match="tensor 'n' is stored as I64, expected one of F64, F32"):
        file.tensor("n")


def test_is_a_mapping(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES, y=VALUES))

    assert sorted(file) == ["x", "y"]
    assert len(file) == 2
    assert "x" in file
    assert "z" not in file
    assert file.shape("x") == (2, 3)


def test_missing_tensor_names_a_similar_one(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", **{"model.head.weight": VALUES}))

    with pytest.raises(
        CheckpointError, match=r"'model.head.weigth' is missing \(similar: 'model.head.weight'\)"
    ):
        file.tensor("model.head.weigth")


def test_wrong_shape(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES))

    with pytest.raises(
        CheckpointError, match=r"a.safetensors: tensor 'x' has shape \[2, 3\], expected \[3, 2\]"
    ):
        file.tensor("x", (3, 2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers(tmp_path: Path, bad: float) -> None:
    values = VALUES.copy()
    values[1, 2] = bad
    file = TensorFile(write(tmp_path / "a.safetensors", x=values))

    with pytest.raises(CheckpointError, match=r"'x' has 1 NaN or infinite values of 6, first at \[1, 2\]"):
        file.tensor("x")


def test_unsupported_stored_type(tmp_path: Path) -> None:
    file = TensorFile(write_raw(tmp_path / "a.safetensors", "F8_E4M3", [2, 3], bytes(6)))

    with pytest.raises(CheckpointError, match="'x' is stored as F8_E4M3, expected one of"):
        file["x"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none.safetensors: no such file"):
        TensorFile(tmp_path / "none.safetensors")


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"{tmp_path}: is no regular file, expected one"):
        TensorFile(tmp_path)


@given(st.data())
def test_truncated_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = write(tmp_path_factory.mktemp("cut") / "a.safetensors", x=VALUES)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])

    with pytest.raises(CheckpointError, match=r"a.safetensors: not a complete safetensors file of \d+ bytes"):
        TensorFile(path)


def test_another_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_text("version https://example.org/pointer\n" * 10)

    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        TensorFile(path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": np.zeros(3, np.float32)}, path)

    def refuse(self: Path, *args: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    # The superuser, who may run this, may read any file.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match=r"a\.safetensors: cannot be read: .*Permission denied"):
        TensorFile(path)


def test_what_is_not_in_the_file_is_in_the_one_beside_it(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    beside = TensorFile(write(tmp_path / "b.safetensors", x=VALUES + 1, table=table))
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES, y=VALUES[:1]), beside)

    np.testing.assert_array_equal(file["x"], VALUES)
    np.testing.assert_array_equal(file["table"], table)
    np.testing.assert_array_equal(file.rows("table", 1, 3), table[1:3])
    np.testing.assert_array_equal(file.tensor("table", (4, 3)), table)
    assert sorted(file) == ["table", "x", "y"] and len(file) == 3
    assert "table" in file and "z" not in file
    assert file.shapes == {"x": (2, 3), "y": (1, 3), "table": (4, 3)} and file.size("table") == 12
    with pytest.raises(CheckpointError, match=r"a.safetensors: tensor 'z' is missing"):
        file.tensor("z")
    with pytest.raises(CheckpointError, match=r"b.safetensors: tensor 'table' has shape \[4, 3\]"):
        file.tensor("table", (3, 4))
    np.testing.assert_array_equal(file.mapped("table"), table)
    (tmp_path / "b.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"b.safetensors: was changed"):
        file.check_mapped()
