"""How busy the machine is with the work of others: its GPU and the cores of the second stage.

The packages that read this are optional, nvidia-ml-py for the GPU and psutil for the cores. Where one is
missing, or stops to answer, that load is unknown and the rest goes on; :attr:`MachineState.problems` says
why.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

LEAST_INTERVAL_S = 0.1
"""The kernel counts a core's time in hundredths of a second: over less than this a load is mostly chance."""

_PERCENT = 100.0
# Time that a virtual machine gives to its guest is counted in "user" already.
_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")


class MachineStateError(ValueError):
    """A GPU or a core that this machine does not have."""


@dataclass(frozen=True)
class Loads:
    """Shares of the time that others take, 0 to 1; None where it is unknown.

    gpu: of the GPU, in the driver's last sampling period (1/6 to 1 s). What this process takes is left out as
        far as the driver tells processes apart; where it does not, all that is taken.
    cpu: of the cores, since the last sample. What this process's threads take that may run on these cores
        alone is left out, so pin a stage to the cores that are watched.
    """

    gpu: float | None
    cpu: float | None


class LoadReader(Protocol):
    """One side's load."""

    def read(self) -> float:
        """The share that others take now. Raises what its library raises."""
        ...


class GpuLoad:
    """The load of a GPU, which has an index in the driver's order or a UUID, by ``nvml``, the module
    pynvml."""

    def __init__(self, gpu: int | str, nvml: Any) -> None:
        """Raises MachineStateError where there is no GPU of that index, and NVMLError without a driver or for
        an unknown UUID."""
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        if isinstance(gpu, int) and not 0 <= gpu < count:
            raise MachineStateError(f"the GPU has the index {gpu}, expected less than {count}, their number")
        by = nvml.nvmlDeviceGetHandleByIndex if isinstance(gpu, int) else nvml.nvmlDeviceGetHandleByUUID
        self._nvml = nvml
        self._handle = by(gpu)
        self._seen = 0

    def read(self) -> float:
        busy = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
        return _share((busy - self._own()) / _PERCENT)

    def _own(self) -> float:
        """What this process took of the GPU, in percent, since it was last read."""
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen)
        except self._nvml.NVMLError:  # not told on this GPU, or nothing ran
            return 0.0
        self._seen = max((sample.timeStamp for sample in samples), default=self._seen)
        own = [sample.smUtil for sample in samples if sample.pid == os.getpid()]
        return sum(own) / len(own) if own else 0.0


class CpuLoad:
    """The load of ``cpus``, by ``psutil``, the module; ``clock`` gives seconds."""

    def __init__(self, cpus: Collection[int], psutil: Any, clock: Callable[[], float]) -> None:
        """Raises MachineStateError for cores that there are not."""
        there = len(psutil.cpu_times(percpu=True))
        if not cpus or not all(0 <= cpu < there for cpu in cpus):
            raise MachineStateError(f"the cores are {sorted(cpus)}, expected numbers below {there}")
        self._cpus = frozenset(cpus)
        self._psutil = psutil
        self._clock = clock
        self._process = psutil.Process()
        self._last = self._counted()
        self._load = 0.0

    def read(self) -> float:
        """0 before a first interval is over."""
        before, busy_before, own_before = self._last
        if self._clock() - before >= LEAST_INTERVAL_S:
            at, busy, own = self._last = self._counted()
            # A thread that ended takes its time with it.
            ours = max(0.0, own - own_before)
            self._load = _share((busy - busy_before - ours) / ((at - before) * len(self._cpus)))
        return self._load

    def _counted(self) -> tuple[float, float, float]:
        """Now, seconds for which the cores were busy, and what this process's pinned threads took of them."""
        times = self._psutil.cpu_times(percpu=True)
        busy = sum(_busy(times[cpu]._asdict()) for cpu in self._cpus)
        return self._clock(), busy, sum(self._own_seconds())

    def _own_seconds(self) -> list[float]:
        return [
            thread.user_time + thread.system_time
            for thread in self._process.threads()
            if _affinity(thread.id) <= self._cpus
        ]


class MachineState:
    """The loads of this machine."""

    def __init__(self, gpu: LoadReader | str, cpu: LoadReader | str) -> None:
        """Each a reader, or why there is none; :meth:`of_this` finds them."""
        sides = {"gpu": gpu, "cpu": cpu}
        self._readers = {name: reader for name, reader in sides.items() if not isinstance(reader, str)}
        self._problems = {name: reason for name, reason in sides.items() if isinstance(reason, str)}

    @classmethod
    def of_this(cls, gpu: int | None = None, cpus: Collection[int] | None = None) -> MachineState:
        """The GPU of this index, or the first one that CUDA shows to this process if there is one, and the
        cores given, or all that this process may run on. Raises MachineStateError for a GPU or a core that
        was asked for and is not there.
        """
        cores = os.sched_getaffinity(0) if cpus is None else frozenset(cpus)
        return cls(_gpu_reader(gpu), _cpu_reader(cores))

    @property
    def problems(self) -> Mapping[str, str]:
        """Why a load ("gpu" or "cpu") is unknown."""
        return dict(self._problems)

    def sample(self) -> Loads:
        """The loads now. A reader that fails is asked again next time."""
        return Loads(self._read("gpu"), self._read("cpu"))

    def _read(self, name: str) -> float | None:
        if name not in self._readers:
            return None
        try:
            load = self._readers[name].read()
        except Exception as error:  # a library's own, of a driver that went away or a core taken offline
            self._problems[name] = f"{type(error).__name__}: {error}"
            return None
        self._problems.pop(name, None)
        return load


def _gpu_reader(index: int | None) -> LoadReader | str:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "the package nvidia-ml-py is not installed (pip install nvidia-ml-py)"
    try:
        return GpuLoad(_first_visible() if index is None else index, nvml)
    except MachineStateError as error:
        if index is None:
            return "there is no GPU"
        raise error
    except nvml.NVMLError as error:
        return f"the GPU's driver does not answer: {error}"


def _first_visible() -> int | str:
    """By CUDA_VISIBLE_DEVICES, whose numbers are the driver's with CUDA_DEVICE_ORDER=PCI_BUS_ID or where all
    GPUs are alike; -1 where it shows none."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return 0
    first = shown.split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return first
    return int(first) if first.isdecimal() else -1


def _cpu_reader(cpus: Collection[int]) -> LoadReader | str:
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        return "the package psutil is not installed (pip install psutil)"
    return CpuLoad(cpus, psutil, time.monotonic)


def _affinity(thread: int) -> frozenset[int]:
    """The cores that a thread may run on; all there are where it has just ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return frozenset(range(os.cpu_count() or 1)) | {-1}


def _busy(times: Mapping[str, float]) -> float:
    return sum(seconds for name, seconds in times.items() if name not in _NOT_BUSY)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
