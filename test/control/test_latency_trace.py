"""Latency traces: three formats, and files that are something else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.control.latency_trace import read_trace
from vla_simd_ros.control.schedule import SupplyError


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.csv", "12.5\n\n20\n30\n"),
        ("header.csv", "latency_ms\r\n12.5\r\n20\r\n30\r\n"),
        ("columns.CSV", "query,latency_ms,note\n1,12.5,a\n2, 20 ,\n3,30,b\n"),
        ("excel.csv", "\ufefflatency_ms\n12.5\n20\n30\n"),
        ("list.json", "[12.5, 20, 30]"),
        ("object.json", json.dumps({"source": "x", "latencies_ms": [12.5, 20, 30]})),
    ],
)
def test_text_is_read(tmp_path: Path, name: str, content: str) -> None:
    assert read_trace(written(tmp_path, name, content)).tolist() == [0.0125, 0.02, 0.03]


def test_arrays_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "trace.npz", latencies_ms=np.array([12.5, 20, 30], np.float32), other=np.zeros(2))
    assert read_trace(tmp_path / "trace.npz") == pytest.approx([0.0125, 0.02, 0.03])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.txt", "1\n", "ends in '.txt', expected .csv, .json, .npz"),
        ("t.csv", "", "sample is empty"),
        ("t.csv", "latency_ms\n", "sample is empty"),
        ("t.csv", "1\nfast\n", "line 2: got 'fast'"),
        ("t.csv", "a,b\n1,2\n", "2 columns .* a header with 'latency_ms'"),
        ("t.csv", "a,latency_ms\n1,2\n3\n", "line 3: got ''"),
        ("t.csv", "1\n-2\n", "latency 2 of the sample is -2.0"),
        ("t.csv", "1\nnan\n", "latency 2 of the sample is nan"),
        ("t.csv", b"\xff\xfe1\n", "not a table of text"),
        ("t.json", "{", "not JSON"),
        ("t.json", '{"latency": [1]}', "under 'latencies_ms'"),
        ("t.json", "[1, true]", "expected a list of numbers"),
        ("t.json", "[[1]]", "expected a list of numbers"),
        ("t.npz", b"no zip", "not an npz file"),
        ("t.npz", b"", "not an npz file"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(SupplyError, match=words) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


def test_archives_with_something_else_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, times=np.zeros(3))
    with pytest.raises(SupplyError, match=r"arrays \['times'\], expected one named 'latencies_ms'"):
        read_trace(path)
    np.savez(path, latencies_ms=np.array(["1", "2"]))
    with pytest.raises(SupplyError, match="holds <U1, expected numbers"):
        read_trace(path)
    np.savez(path, latencies_ms=np.array([{}, 1], dtype=object))
    with pytest.raises(SupplyError, match="not an npz file of plain arrays"):
        read_trace(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "missing.csv")
