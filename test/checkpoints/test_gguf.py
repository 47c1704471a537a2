from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from vla_simd_ros.checkpoints.errors import CheckpointError  # noqa: E402
from vla_simd_ros.checkpoints.gguf import GgufFile  # noqa: E402
from vla_simd_ros.checkpoints.gguf_header import read_gguf_header  # noqa: E402

Array = np.ndarray[Any, Any]

ADD = {str: "string", list: "array", float: "float32", bool: "bool", int: "uint32"}
BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}


def blocks(kind: str, rows: int, cols: int, seed: int = 0) -> Array:
    """Random bytes with scales that are ordinary numbers."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (rows * cols // 32, BLOCK_BYTES[kind]), np.uint8)
    halves = 2 if kind == "Q4_1" else 1
    data[:, : 2 * halves] = rng.normal(size=(len(data), halves)).astype(np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def expanded(kind: str, data: Array) -> Array:
    """The values of blocks, one at a time and in exact arithmetic, rounded to float32 once."""
    values = []
    for block in data.reshape(-1, BLOCK_BYTES[kind]):
        raw = block.tobytes()
        scale = np.float64(struct.unpack_from("<e", raw)[0])
        if kind == "Q8_0":
            values += [scale * q for q in struct.unpack_from("<32b", raw, 2)]
            continue
        least = np.float64(struct.unpack_from("<e", raw, 2)[0]) if kind == "Q4_1" else -8 * scale
        nibbles = raw[-16:]
        values += [scale * (byte & 15) + least for byte in nibbles]
        values += [scale * (byte >> 4) + least for byte in nibbles]
    return np.array(values, np.float64).astype(np.float32).reshape(len(data), -1)


def write(path: Path, tensors: dict[str, Array], kinds: dict[str, str] | None = None, **fields: Any) -> Path:
    """A file as the library writes it; ``kinds`` has the types of tensors that are given as bytes."""
    writer = gguf.GGUFWriter(path, "test")
    for key, value in fields.items():
        getattr(writer, f"add_{ADD[type(value)]}")(key, value)
    for name, value in tensors.items():
        kind = (kinds or {}).get(name)
        writer.add_tensor(name, value, raw_dtype=gguf.GGMLQuantizationType[kind] if kind else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def small_file(path: Path) -> Path:
    return write(
        path,
        {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": blocks("Q4_1", 2, 64)},
        {"b": "Q4_1"},
        words=["one", "zwei", "три"],
        numbers=[1, -2, 3],
        name="small",
        width=7,
        rate=0.5,
        flag=True,
    )


def test_metadata_are_plain_values(tmp_path: Path) -> None:
    file = GgufFile(small_file(tmp_path / "a.gguf"))

    expected = {"words": ["one", "zwei", "три"], "numbers": [1, -2, 3], "name": "small", "width": 7}
    assert {key: file.fields[key] for key in expected} == expected
    assert file.fields["rate"] == 0.5 and file.fields["flag"] is True
    assert file.fields["general.architecture"] == "test"
    assert file.names == ("a", "b")
    assert file.field("width", int) == 7 and file.field("width", float) == 7.0


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_floats(tmp_path: Path, dtype: type) -> None:
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    file = GgufFile(write(tmp_path / "a.gguf", {"x": values}))

    np.testing.assert_array_equal(file.tensor("x", (3, 5)), values.astype(np.float32))
    assert file.tensor("x").dtype == np.float32
    assert file.blocks("x") is None


def test_bfloat16(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    stored = (values.view(np.uint32) >> 16).astype(np.uint16)
    file = GgufFile(write(tmp_path / "a.gguf", {"x": stored.view(np.uint8)}, {"x": "BF16"}))

    np.testing.assert_array_equal(file.tensor("x"), (stored.astype(np.uint32) << 16).view(np.float32))


@pytest.mark.parametrize("kind", BLOCK_BYTES)
def test_blocks_are_expanded_as_their_definition_says(tmp_path: Path, kind: str) -> None:
    data = blocks(kind, 3, 96)
    file = GgufFile(write(tmp_path / "a.gguf", {"x": data}, {"x": kind}))
    values = expanded(kind, data)

    assert file.kind("x") == kind and file.shape("x") == (3, 96)
    np.testing.assert_array_equal(file.tensor("x"), values)
    np.testing.assert_array_equal(file.rows("x", 1, 3), values[1:])
    stored, raw = file.packed("x")
    assert stored == kind
    np.testing.assert_array_equal(raw, data)
    kept = file.blocks("x")
    assert kept is not None and kept.form == kind.lower() and kept.shape == (3, 96)
    np.testing.assert_array_equal(kept.data, data)


def test_other_blocks_are_expanded_too(tmp_path: Path) -> None:
    """Q6_K: 4 lower and 2 upper bits per value, a scale of 8 bits for 16 values and one for all 256."""
    rng = np.random.default_rng(0)
    low, high = rng.integers(0, 256, (2, 64), np.uint8), rng.integers(0, 256, (2, 32), np.uint8)
    scales = rng.integers(-128, 128, 16).astype(np.int8)
    data = np.concatenate(
        [low.ravel(), high.ravel(), scales.view(np.uint8), np.array([0.5], "<f2").view(np.uint8)]
    )
    values = np.empty((2, 4, 32))
    for half in range(2):
        for i in range(32):
            nibbles = low[half, i] & 15, low[half, i + 32] & 15, low[half, i] >> 4, low[half, i + 32] >> 4
            for part, nibble in enumerate(nibbles):
                q = int(nibble) + 16 * (int(high[half, i]) >> 2 * part & 3) - 32
                values[half, part, i] = 0.5 * float(scales[8 * half + 2 * part + i // 16]) * q
    file = GgufFile(write(tmp_path / "a.gguf", {"x": data[None]}, {"x": "Q6_K"}))

    np.testing.assert_array_equal(file.tensor("x"), values.reshape(1, 256).astype(np.float32))
    assert file.blocks("x") is None


def test_what_is_not_there(tmp_path: Path) -> None:
    file = GgufFile(small_file(tmp_path / "a.gguf"))

    with pytest.raises(CheckpointError, match=r"a\.gguf: tensor 'aa' is missing \(similar: 'a'\)"):
        file.tensor("aa")
    with pytest.raises(CheckpointError, match=r"tensor 'b' has shape \[2, 64\], expected \[64, 2\]"):
        file.shape("b", (64, 2))
    with pytest.raises(CheckpointError, match=r"field 'widht' is missing \(similar: 'width'\)"):
        file.field("widht", int)
    with pytest.raises(CheckpointError, match="field 'name' is of type str, expected int"):
        file.field("name", int)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    data = blocks("Q8_0", 2, 64)
    data[1, :2] = np.array([np.inf], np.float16).view(np.uint8)
    values = np.array([1.0, np.nan, np.inf], np.float32)
    file = GgufFile(write(tmp_path / "a.gguf", {"x": values, "y": data}, {"y": "Q8_0"}))

    with pytest.raises(CheckpointError, match="'x' has 2 NaN or infinite values of 3"):
        file.tensor("x")
    with pytest.raises(CheckpointError, match="'y' has 1 NaN or infinite scales of 4"):
        file.blocks("y")
    with pytest.raises(CheckpointError, match="'y' has 32 NaN or infinite values of 128"):
        file.tensor("y")


def test_a_file_that_ends_early_is_an_error_wherever_it_ends(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "a.gguf").read_bytes()
    part = tmp_path / "part.gguf"
    # The file ends with padding to the next aligned byte.
    for length in (*range(0, len(whole) - 32, 7), len(whole) - 40):
        part.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"part\.gguf"):
            GgufFile(part)


def test_a_file_with_any_one_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "a.gguf").read_bytes()
    changed = tmp_path / "changed.gguf"
    refused = 0
    for at in range(0, 400, 3):
        changed.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            file = GgufFile(changed)
            for name in file.names:
                file.tensor(name)
        except CheckpointError as error:
            assert "changed.gguf" in str(error)
            refused += 1
    assert refused > 60


def test_unknown_types(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "a.gguf").read_bytes()
    at = whole.index(b"\x01\x00\x00\x00\x00\x00\x00\x00b") + 9  # the name, then axes, 2 sides, type
    broken = tmp_path / "b.gguf"
    broken.write_bytes(whole[: at + 20] + struct.pack("<I", 4) + whole[at + 24 :])
    with pytest.raises(CheckpointError, match=r"b\.gguf: tensor 'b' is of unknown type 4"):
        GgufFile(broken)

    broken.write_bytes(whole[:4] + struct.pack("<I", 9) + whole[8:])
    with pytest.raises(CheckpointError, match="is of version 9, expected 2 or 3"):
        GgufFile(broken)

    broken.write_bytes(b"safetens" + whole[8:])
    with pytest.raises(CheckpointError, match="begins with b'safe', expected b'GGUF'"):
        GgufFile(broken)


def test_a_type_that_cannot_be_expanded(tmp_path: Path) -> None:
    data = np.zeros((1, 40), np.uint8)
    file = GgufFile(write(tmp_path / "a.gguf", {"x": data}, {"x": "Q8_1"}))

    with pytest.raises(CheckpointError, match="'x' is stored as Q8_1, which cannot be expanded"):
        file.tensor("x")


def test_a_file_written_to_while_it_is_open(tmp_path: Path) -> None:
    file = GgufFile(small_file(tmp_path / "a.gguf"))
    with file.path.open("ab") as more:
        more.write(b"x")

    with pytest.raises(CheckpointError, match="was changed since it was opened"):
        file.tensor("a")


def test_no_file_and_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match=r"none\.gguf: no such file"):
        GgufFile(tmp_path / "none.gguf")

    path = small_file(tmp_path / "a.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match=r"pip install 'vla_simd_ros\[gguf\]'"):
        read_gguf_header(path)
