"""Stand-ins for LeRobot's classes, so that what its client would pickle can be pickled here."""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

HELPERS = "lerobot.async_inference.helpers"


class Client:
    """Pickles as LeRobot's client does."""

    def __init__(self, helpers: types.ModuleType) -> None:
        self._helpers = helpers

    def dumps(self, kind: str, protocol: int | None = None, **fields: Any) -> bytes:
        """A pickled dataclass of LeRobot's with these fields."""
        made = getattr(self._helpers, kind)()
        made.__dict__.update(fields)
        return pickle.dumps(made, protocol)

    def config(self, **changes: Any) -> bytes:
        """A pickled RemotePolicyConfig of an arm with two joints and a camera."""
        state = {"dtype": "float32", "shape": (2,), "names": ["pan.pos", "lift.pos"]}
        camera = {"dtype": "image", "shape": (8, 12, 3), "names": ["height", "width", "channels"]}
        fields = {
            "policy_type": "act",
            "pretrained_name_or_path": "someone/some-policy",
            "lerobot_features": {"observation.state": state, "observation.images.front": camera},
            "actions_per_chunk": 3,
            "device": "cuda",
            "rename_map": {},
        }
        return self.dumps("RemotePolicyConfig", **{**fields, **changes})

    def observation(self, protocol: int | None = None, values: Any = None, **changes: Any) -> bytes:
        """A pickled TimedObservation; ``values`` are added to what the robot observes."""
        image = np.arange(8 * 12 * 3, dtype=np.uint8).reshape(8, 12, 3)
        observed = {"pan.pos": 1.5, "lift.pos": np.float32(-2), "front": image, "task": "wave"}
        fields = {
            "timestamp": 1000.0,
            "timestep": 0,
            "observation": {**observed, **(values or {})},
            "must_go": False,
        }
        return self.dumps("TimedObservation", protocol, **{**fields, **changes})


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """What LeRobot's client would send."""
    helpers = types.ModuleType(HELPERS)
    for name in ("TimedObservation", "RemotePolicyConfig", "TimedAction"):
        setattr(helpers, name, type(name, (), {"__module__": HELPERS}))
    for name in ("lerobot", "lerobot.async_inference"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, HELPERS, helpers)
    yield Client(helpers)
