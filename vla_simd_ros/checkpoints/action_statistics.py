"""Ranges of the actions of data sets, by which a policy's actions are brought into robot units again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import describe, read_json_object

STATISTICS_FILE = "dataset_statistics.json"
_FIELD, _KEY = "norm_stats", "unnorm_key"


@dataclass(frozen=True, eq=False)
class ActionStatistics:
    """Of the data set ``key``: what -1 and 1 stand for in each column, float64, and which columns are scaled
    at all; the others are in robot units already."""

    key: str
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    scaled: npt.NDArray[np.bool_]

    @property
    def width(self) -> int:
        """Columns of an action."""
        return len(self.low)


def read_action_statistics(folder: Path, config: Mapping[str, Any]) -> ActionStatistics:
    """The statistics of the data set that ``unnorm_key`` of config.json names, or of the only one there is.

    They are in a file of their own, as fine-tuned policies have them, or else in config.json. Raises
    `CheckpointError`, with the names that there are, for another one.
    """
    where, sets = _data_sets(folder, config)
    key = _chosen(folder, config, where, sets)
    place = f"{where}: statistics of '{key}'"
    entry = _object(sets[key], place)
    action = _object(json_file.field(entry, "action", dict, place), place)
    low, high = (_numbers(action, name, place) for name in ("q01", "q99"))
    if len(low) != len(high) or not len(low):
        raise CheckpointError(
            f"{place}: q01 has {len(low)} values, q99 {len(high)}, expected as many, 1 or more"
        )
    if (low > high).any():
        column = int(np.argmax(low > high))
        raise CheckpointError(
            f"{place}: q01 is {low[column]} in column {column}, expected at most q99 ({high[column]})"
        )
    return ActionStatistics(key, low, high, _mask(action, len(low), place))


def _data_sets(folder: Path, config: Mapping[str, Any]) -> tuple[Path, Mapping[str, Any]]:
    own = folder / STATISTICS_FILE
    if own.is_file():
        return own, read_json_object(own)
    where = folder / "config.json"
    if config.get(_FIELD) is None:
        raise CheckpointError(
            f"{where}: has no '{_FIELD}', nor is there {own}: expected the ranges of actions in one of them"
        )
    return where, json_file.field(config, _FIELD, dict, where)


def _chosen(folder: Path, config: Mapping[str, Any], where: Path, sets: Mapping[str, Any]) -> str:
    names = ", ".join(sorted(sets)) or "none"
    if config.get(_KEY) is None:
        if len(sets) != 1:
            raise CheckpointError(
                f"{where}: has the statistics of {len(sets)} data sets; name your robot's as '{_KEY}' in "
                f"{folder / 'config.json'}: {names}"
            )
        return next(iter(sets))
    key: str = json_file.field(config, _KEY, str, folder / "config.json")
    if key not in sets:
        raise CheckpointError(f"{folder / 'config.json'}: {_KEY} is '{key}', expected one of {names}")
    return key


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} are {describe(value)}, expected an object")
    return value


def _numbers(owner: Mapping[str, Any], name: str, where: str) -> npt.NDArray[np.float64]:
    values = json_file.field(owner, name, list, where)
    for index, value in enumerate(values):
        json_file.field({f"{name}[{index}]": value}, f"{name}[{index}]", float, where)
    return np.array(values, np.float64)


def _mask(owner: Mapping[str, Any], width: int, where: str) -> npt.NDArray[np.bool_]:
    values = json_file.field(owner, "mask", list, where) if "mask" in owner else [True] * width
    if len(values) != width or not all(isinstance(value, bool) for value in values):
        raise CheckpointError(f"{where}: mask is {values}, expected {width} times true or false")
    return np.array(values, np.bool_)
