"""Backends that compute nothing, for the processes that the tests start. An observation is a number."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import BenchmarkError, Setup
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.work import Work
from vla_simd_ros.decoding.base import Decoded, Exit, Pass


class Faithful:
    """Actions that depend on the observation alone."""

    def __init__(self, setup: Setup) -> None:
        self.details = {
            "threads": str(setup.threads or 3),
            "isa": setup.settings.isa or "fake",
            "int8": setup.int8,
            "omp": _omp(),
        }

    def query(self, observation: float) -> npt.NDArray[np.float32]:
        self.spent_ms = {"query": 3.0, "step": 8.0}
        return np.array([[observation, 1.0], [2.0, -4.0]], dtype=np.float32)

    def profile(self, observation: float, queries: int) -> list[OpTime]:
        return [
            OpTime("a", "linear", "linear", "fp32", "head", "1x2x2", 1, 2, Work(8, 8, 16, 32), float(queries))
        ]


class Calibrating(Faithful):
    """Answers only after it has seen the observations, and tells how it is held."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.details["onednn"] = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
        self.details["seen"] = ""

    def calibrate(self, observations: Sequence[float]) -> None:
        self.details["seen"] = ",".join(f"{value:g}" for value in observations)

    def query(self, observation: float) -> npt.NDArray[np.float32]:
        assert self.details["seen"]
        return super().query(observation)


class Departing(Faithful):
    """One action is off by a thousandth of the largest."""

    def query(self, observation: float) -> npt.NDArray[np.float32]:
        actions = super().query(observation)
        actions[0, 1] += 0.004
        return actions


class Spelling(Faithful):
    """Decodes as it is told to; what exits early is another action."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._early = setup.decoder.decoder == "early_exit"
        passes = tuple(Pass(4, 0, (), 4, 0.9, 0.5) for _ in range(1 if self._early else 2))
        self.decoded = Decoded((0,) * 8, passes, Exit.FIXED_POINT, True)

    def query(self, observation: float) -> npt.NDArray[np.float32]:
        return super().query(observation) * (-1 if self._early else 1)


class Opaque(Faithful):
    profile = None  # type: ignore[assignment]


class Impossible:
    def __init__(self, setup: Setup) -> None:
        raise BenchmarkError("needs a package that is not there")


class Broken(Faithful):
    """A backend with a fault of its own."""

    def query(self, observation: float) -> npt.NDArray[np.float32]:
        raise ValueError(f"cannot answer {observation}")


class Dying(Faithful):
    def query(self, observation: float) -> npt.NDArray[np.float32]:
        os._exit(7)


class Spinning(Faithful):
    """Keeps a thread busy between queries, as the worker threads of some runtimes do."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.details["pid"] = str(os.getpid())
        threading.Thread(target=_spin, daemon=True).start()


def _spin() -> None:
    while True:
        pass


def _omp() -> str:
    return os.environ.get("OMP_NUM_THREADS", "")


class Talking(Faithful):
    """A language model that writes the last token of a prompt."""

    def query(self, prompt: Any) -> str:
        self.spent_ms = {"prefill": 2.0 * len(prompt.tokens), "decode": 2.0}
        return f"a{prompt.tokens[-1]}"


class SlowlyTalking(Talking):
    """Takes longer, and is mistaken about one prompt."""

    def query(self, prompt: Any) -> str:
        self.spent_ms = {"prefill": 4.0 * len(prompt.tokens), "decode": 6.0}
        return "a4"
