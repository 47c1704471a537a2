"""What the frozen part of an action-token policy makes of every observation, computed once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vla_simd_ros.training.batches import Batches
from vla_simd_ros.training.demonstrations import Demonstrations
from vla_simd_ros.training.impact_tokens import ImpactTokensPolicy, Prefix

_TOGETHER = 256
_PROGRESS_S = 4.0
_TRAINED = "model.tokens."


class Encoded:
    """The prefix rows of observations, float16 [m, n, width] in a memory-mapped file.

    ``there`` [tasks, n] says which of them there are with the instruction of each task; ``task`` [m].
    """

    def __init__(
        self,
        rows: npt.NDArray[np.float16],
        there: Tensor,
        task: npt.NDArray[np.int64],
        device: torch.device,
    ) -> None:
        self._rows = rows
        self._there = there.to(device)
        self._task = task
        self.device = device
        """Where prefixes are put."""

    def prefix(self, rows: npt.NDArray[np.int64]) -> Prefix:
        """Of the observations ``rows``."""
        # In the order of the file, which is read faster so.
        order = np.argsort(rows)
        found = np.empty((len(rows), *self._rows.shape[1:]), np.float32)
        found[order] = self._rows[rows[order]]
        there = self._there[torch.from_numpy(self._task[rows])]
        return Prefix(torch.from_numpy(found).to(self.device), there)


def encode_observations(
    policy: ImpactTokensPolicy,
    data: Demonstrations,
    batches: Batches,
    folder: Path,
    say: Callable[[str], None],
) -> Encoded:
    """Encode all observations, which ``batches`` normalizes, or go on with what ``folder`` holds of them.

    A file belongs to one set of frozen weights and one of observations: its name says which.
    """
    count = len(data.seen)
    first = policy.prefix(batches.batch(batches.rows[:1]).inputs)
    path = folder / f"encoded-{_digest(policy, data)}.f16"
    size = first.rows[0].numel() * np.dtype(np.float16).itemsize
    done = path.stat().st_size // size if path.is_file() else 0
    # Whole batches only: in other ones the last bits are others.
    done = count if done == count else done // _TOGETHER * _TOGETHER
    began = last_said = time.monotonic()
    with path.open("r+b" if done else "wb") as file:
        file.truncate(done * size)
        file.seek(done * size)
        for start in range(done, count, _TOGETHER):
            rows = batches.rows[start : start + _TOGETHER]
            file.write(policy.prefix(batches.batch(rows).inputs).rows.cpu().numpy().astype(np.float16).data)
            if time.monotonic() - last_said > _PROGRESS_S:
                say(f"encoded {start + len(rows)} of {count} observations")
                last_said = time.monotonic()
    if done < count:
        say(f"encoded {count - done} observations in {time.monotonic() - began:.0f} s")
    shape = (count, *first.rows.shape[1:])
    stored: npt.NDArray[Any] = np.memmap(path, np.float16, "r", shape=shape)
    # Which rows there are is the instruction's doing alone: an observation of each task tells it.
    task = data.task[data.seen]
    tasks, examples = np.unique(task, return_index=True)
    found = policy.prefix(batches.batch(examples).inputs).there
    there = found.new_zeros(len(data.tasks), found.shape[1])
    there[torch.from_numpy(tasks)] = found
    return Encoded(stored, there, task, first.rows.device)


def _digest(policy: ImpactTokensPolicy, data: Demonstrations) -> str:
    """Of the weights that are frozen, and of what was observed when."""
    digest = hashlib.sha256(data.seen.tobytes() + data.state.tobytes() + data.task.tobytes())
    for name, values in policy.state_dict().items():
        if not name.startswith(_TRAINED):
            digest.update(name.encode())
            digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
