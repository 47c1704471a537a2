"""The pickle of a chunk, read back by Python's own unpickler."""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.server.action_pickle import dump_actions


@pytest.fixture
def names(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client's side has under the names in the pickle."""
    torch = types.ModuleType("torch")
    torch.tensor = lambda values: np.array(values, np.float32)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    helpers: Any = sys.modules["lerobot.async_inference.helpers"]
    helpers.TimedAction = lambda timestamp, timestep, action: (timestamp, timestep, action)


@pytest.mark.usefixtures("names")
def test_rows_keep_their_bits_and_have_their_times() -> None:
    actions = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    actions[0, 0], actions[1, 1] = np.finfo(np.float32).max, np.float32(1e-42)
    chunk = pickle.loads(dump_actions(actions, timestamp=1e9 + 0.125, timestep=70000, period=0.25))
    assert [timestep for _, timestep, _ in chunk] == [70000, 70001, 70002, 70003]
    assert [timestamp for timestamp, _, _ in chunk] == [1e9 + 0.125 + i * 0.25 for i in range(4)]
    np.testing.assert_array_equal(np.stack([action for _, _, action in chunk]), actions)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("timestep", [0, 127, 128, 255, 32767, 2**31, 2**63])
def test_any_step_number(timestep: int) -> None:
    assert pickle.loads(dump_actions(np.zeros((1, 1)), 0.0, timestep, 0.1))[0][1] == timestep


@pytest.mark.usefixtures("names")
def test_no_rows() -> None:
    assert pickle.loads(dump_actions(np.zeros((0, 6)), 0.0, 0, 0.1)) == []
