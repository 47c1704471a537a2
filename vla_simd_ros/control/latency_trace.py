"""Latency traces: files that hold the milliseconds that queries took, in the order they ran.

- ``.csv``: one latency per line, or several columns with a header line of which one is ``latency_ms``;
- ``.json``: a list of numbers, or an object with such a list under ``latencies_ms``;
- ``.npz``: an array ``latencies_ms``.
"""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.control.schedule import Seconds, SupplyError, checked_latencies

COLUMN = "latency_ms"
NAME = "latencies_ms"


def read_trace(path: Path) -> Seconds:
    """The latencies of a file, in seconds. Raises `SupplyError`, with the file's name, and ``OSError``."""
    readers = {".csv": _read_csv, ".json": _read_json, ".npz": _read_npz}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise SupplyError(f"{path}: the name ends in '{path.suffix}', expected {', '.join(readers)}")
    try:
        return checked_latencies(reader(path)) * 1e-3
    except SupplyError as error:
        raise SupplyError(f"{path}: {error}") from None


def _read_csv(path: Path) -> list[float]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise SupplyError(f"not a table of text: {error}") from None
    if not rows:
        return []
    column = 0
    first = [cell.strip() for cell in rows[0][1]]
    if COLUMN in first:
        column = first.index(COLUMN)
        rows = rows[1:]
    elif len(first) > 1:
        raise SupplyError(f"{len(first)} columns {first}, expected one, or a header with '{COLUMN}'")
    return [_number(row, column, line) for line, row in rows]


def _number(row: list[str], column: int, line: int) -> float:
    cell = row[column].strip() if column < len(row) else ""
    try:
        return float(cell)
    except ValueError:
        raise SupplyError(f"line {line}: got '{cell}', expected a latency in milliseconds") from None


def _read_json(path: Path) -> Any:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise SupplyError(f"not JSON: {error}") from None
    values = content.get(NAME) if isinstance(content, dict) else content
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise SupplyError(f"expected a list of numbers, or an object with one under '{NAME}'")
    return values


def _read_npz(path: Path) -> Any:
    try:
        with np.load(path, allow_pickle=False) as content:
            if NAME not in content:
                raise SupplyError(f"arrays {sorted(content)}, expected one named '{NAME}'")
            values = content[NAME]
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, SupplyError):
            raise
        raise SupplyError(f"not an npz file of plain arrays: {error}") from None
    if values.dtype.kind not in "fiu":
        raise SupplyError(f"'{NAME}' holds {values.dtype}, expected numbers")
    return values
