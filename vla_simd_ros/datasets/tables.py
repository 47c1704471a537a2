"""The Parquet tables of a dataset: their columns, and the notes in them that other readers look for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from vla_simd_ros.datasets.errors import DatasetError, load_package
from vla_simd_ros.datasets.layout import EPISODES, Feature, Info, next_file

Picture = npt.NDArray[np.uint8]
"""RGB [height, width, 3]"""

_TASK, _TASK_INDEX = "task", "task_index"
_UNNAMED_INDEX = "__index_level_0__"
_IMAGE_COLUMN = ("bytes", "path")


def encode_picture(picture: Picture) -> bytes:
    """As PNG."""
    done, encoded = cv2.imencode(".png", picture[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 3])
    assert done, "an 8-bit picture can always be encoded"
    return encoded.tobytes()


def decode_picture(encoded: bytes, where: str) -> Picture:
    """Raises DatasetError, naming `where` it is from, for what is no picture."""
    picture = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise DatasetError(f"{where}: {len(encoded)} bytes that are no picture, expected PNG or JPEG")
    return np.ascontiguousarray(picture[..., ::-1]).astype(np.uint8, copy=False)


def frame_schema(features: Mapping[str, Feature]) -> Any:
    """The columns of the frames' table, with the note by which Hugging Face's reader knows pictures."""
    arrow = load_package("pyarrow")
    columns, notes = {}, {}
    for key, feature in features.items():
        if feature.dtype == "video":
            continue
        columns[key], notes[key] = _column(arrow, key, feature)
    note = json.dumps({"info": {"features": notes}})
    return arrow.schema(list(columns.items()), metadata={"huggingface": note})


def _column(arrow: Any, key: str, feature: Feature) -> tuple[Any, dict[str, Any]]:
    if feature.dtype == "image":
        return arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]), {"_type": "Image"}
    try:
        kind = arrow.type_for_alias(feature.dtype)
    except ValueError as error:
        raise DatasetError(f"feature '{key}': got type '{feature.dtype}', expected a number's") from error
    value = {"dtype": feature.dtype, "_type": "Value"}
    if feature.shape == (1,):
        return kind, value
    if len(feature.shape) != 1:
        raise DatasetError(f"feature '{key}': got shape {list(feature.shape)}, expected one dimension")
    note = {"feature": value, "length": feature.shape[0], "_type": "List"}
    return arrow.list_(kind, feature.shape[0]), note


def frame_table(schema: Any, columns: Mapping[str, Sequence[Any]]) -> Any:
    """One row per frame: numbers, [n] of a vector, and encoded pictures."""
    arrow = load_package("pyarrow")
    arrays = []
    for column in schema:
        values = columns[column.name]
        if arrow.types.is_struct(column.type):
            names = [f"frame-{row:06d}.png" for row in range(len(values))]
            rows = [dict(zip(_IMAGE_COLUMN, pair, strict=True)) for pair in zip(values, names, strict=True)]
            arrays.append(arrow.array(rows, column.type))
        elif arrow.types.is_fixed_size_list(column.type):
            flat = np.asarray(values, column.type.value_type.to_pandas_dtype()).ravel()
            arrays.append(arrow.FixedSizeListArray.from_arrays(arrow.array(flat), column.type.list_size))
        else:
            arrays.append(arrow.array(np.asarray(values, column.type.to_pandas_dtype())))
    return arrow.Table.from_arrays(arrays, schema=schema)


def write_table(path: Path, tables: Sequence[Any]) -> None:
    """Replaces the file as a whole by `tables`, each of them a row group."""
    parquet = load_package("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    with parquet.ParquetWriter(draft, tables[0].schema, compression="snappy") as writer:
        for table in tables:
            writer.write_table(table)
    os.replace(draft, path)


def open_table(path: Path) -> Any:
    """The Parquet file, for its row groups. Raises DatasetError when it is missing or damaged."""
    arrow, parquet = load_package("pyarrow"), load_package("pyarrow.parquet")
    try:
        return parquet.ParquetFile(path)
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


def write_tasks(path: Path, tasks: Sequence[str]) -> None:
    """The sentences by number, as the indexed table that pandas makes of them."""
    arrow = load_package("pyarrow")
    kinds = {_TASK_INDEX: ("int64", "int64"), _TASK: ("unicode", "object")}
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": stored, "metadata": None}
        for name, (kind, stored) in kinds.items()
    ]
    described = {
        "index_columns": [_TASK],
        "column_indexes": [],
        "columns": columns,
        "pandas_version": "2.0.0",
    }
    table = arrow.table({_TASK_INDEX: np.arange(len(tasks)), _TASK: list(tasks)})
    write_table(path, [table.replace_schema_metadata({"pandas": json.dumps(described)})])


def read_tasks(path: Path) -> tuple[str, ...]:
    """Raises DatasetError when there is no such table or it lacks a number."""
    table = open_table(path).read()
    name = next((each for each in (_TASK, _UNNAMED_INDEX) if each in table.column_names), None)
    if name is None or _TASK_INDEX not in table.column_names:
        raise DatasetError(
            f"{path}: got columns {table.column_names}, expected '{_TASK}' and '{_TASK_INDEX}'"
        )
    numbers = table.column(_TASK_INDEX).to_pylist()
    if sorted(numbers) != list(range(len(numbers))):
        raise DatasetError(f"{path}: got task numbers {numbers}, expected each of 0 to {len(numbers) - 1}")
    sentences = dict(zip(numbers, table.column(name).to_pylist(), strict=True))
    return tuple(sentences[number] for number in range(len(numbers)))


def numbered(path: str, numbers: tuple[int, int], **names: str) -> str:
    """The path of a chunk's file, from a pattern of `layout` or of meta/info.json."""
    return path.format(chunk_index=numbers[0], file_index=numbers[1], **names)


def read_episodes(folder: Path, info: Info) -> list[dict[str, Any]]:
    """The rows of all episodes that `info` tells of, in their order.

    Raises DatasetError when files are missing or damaged.
    """
    rows: list[dict[str, Any]] = []
    numbers = (0, 0)
    while len(rows) < info.total_episodes:
        path = folder / numbered(EPISODES, numbers)
        if not path.exists() and numbers[1] > 0:
            numbers = (numbers[0] + 1, 0)
            path = folder / numbered(EPISODES, numbers)
        rows.extend(open_table(path).read().to_pylist())
        numbers = next_file(*numbers, info.chunks_size)
    return sorted(rows, key=lambda row: int(row["episode_index"]))[: info.total_episodes]
