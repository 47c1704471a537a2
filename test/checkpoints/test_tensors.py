from __future__ import annotations

import errno
import json
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


def test_float32_is_a_view_of_the_file(tmp_path: Path) -> None:
    file = TensorFile(write(tmp_path / "a.safetensors", x=VALUES))

    np.testing.assert_array_equal(file["x"], VALUES)
    assert file["x"].base is not None
    assert not file["x"].flags.writeable
    assert type(file["x"]) is np.ndarray
    assert file["x"] is file["x"]


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
