"""Jacobi trajectories of a teacher in files: the states of its tokens from a random one to the fixed point.

A folder holds ``trajectories.json``, which says whose they are and how they were made, and parts
``part-00000.npz`` and so on, each with

- ``rows`` int64 [k]: numbers of observations,
- ``starts`` int64 [k + 1]: the states of the i-th one begin at ``starts[i]`` and end at ``starts[i + 1]``,
- ``states`` uint16 [total, tokens of a chunk]: the first of each trajectory is the guess it began with, the
  last one the fixed point; there is none twice in a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.training.demonstrations import DataError, save_arrays

States = npt.NDArray[np.uint16]

_RECORD = "trajectories.json"


class TrajectoryStore:
    """The folder of trajectories that ``record`` describes. Raises `DataError` where it holds others."""

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _RECORD
        if path.is_file():
            stored = json.loads(path.read_text(encoding="utf-8"))
            for name, value in record.items():
                if stored.get(name) != value:
                    raise DataError(
                        f"{path}: {name} is {stored.get(name)!r}, expected {value!r}; "
                        "another folder takes other trajectories"
                    )
        else:
            path.write_text(json.dumps(dict(record), indent=2) + "\n", encoding="utf-8")

    def has(self, part: int) -> bool:
        """Whether a part is stored."""
        return self._path(part).is_file()

    def add(self, part: int, rows: npt.NDArray[np.int64], trajectories: Sequence[States]) -> None:
        """Store a part; an interrupted write leaves none."""
        starts = np.concatenate([[0], np.cumsum([len(states) for states in trajectories])])
        states = np.concatenate(list(trajectories))
        save_arrays(self._path(part), {"rows": rows, "starts": starts.astype(np.int64), "states": states})

    def read(self, parts: int) -> Trajectories:
        """The first so many parts."""
        return Trajectories([self._path(part) for part in range(parts)])

    def _path(self, part: int) -> Path:
        return self._folder / f"part-{part:05d}.npz"


class Trajectories:
    """What ``parts`` hold, in memory."""

    def __init__(self, parts: Sequence[Path]) -> None:
        self._states: dict[int, States] = {}
        for path in parts:
            with np.load(path) as stored:
                starts, states = stored["starts"], stored["states"]
                for place, row in enumerate(stored["rows"]):
                    self._states[int(row)] = states[starts[place] : starts[place + 1]]

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The observations that have a trajectory, in order."""
        return np.array(sorted(self._states), np.int64)

    @property
    def mean_states(self) -> float:
        """States of a trajectory, on average."""
        return float(np.mean([len(states) for states in self._states.values()]))

    def of(self, row: int) -> States:
        """The states of an observation's tokens, [passes, tokens]."""
        return self._states[row]
