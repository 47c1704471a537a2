"""Loads from readers that count what they are told, and from this machine."""

from __future__ import annotations

import os
import sys
import threading
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from vla_simd_ros.hybrid.machine_state import CpuLoad, GpuLoad, Loads, MachineState, MachineStateError

Times = namedtuple("Times", "user system idle iowait guest")


class Nvml:
    """A driver with ``count`` GPUs, the first of which is busy for so many percent, of which each process
    takes some, and each other one for one percent more."""

    class NVMLError(Exception):
        pass

    def __init__(self, count: int = 1, busy: int = 0, taken: dict[int, int] | None = None) -> None:
        self.count, self.busy, self.taken = count, busy, taken
        self.uuids = [f"GPU-{index}" for index in range(count)]
        self.asked_since: list[int] = []
        self.fails = False

    def nvmlInit(self) -> None:
        if self.fails:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid not in self.uuids:
            raise self.NVMLError("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if self.fails:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(gpu=self.busy + handle)

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[Any]:
        self.asked_since.append(since)
        if self.taken is None:
            raise self.NVMLError("Not Supported")
        return [SimpleNamespace(pid=pid, smUtil=sm, timeStamp=since + 5) for pid, sm in self.taken.items()]


class Cores:
    """psutil of a machine of two cores, whose times are set by the test."""

    def __init__(self) -> None:
        self.times = [Times(0.0, 0.0, 0.0, 0.0, 0.0)] * 2
        self.own: dict[int, float] = {}
        self.now = 0.0

    def cpu_times(self, percpu: bool) -> list[Times]:
        assert percpu
        return self.times

    def Process(self) -> Any:
        return self

    def threads(self) -> list[Any]:
        return [SimpleNamespace(id=thread, user_time=t, system_time=0.0) for thread, t in self.own.items()]

    def clock(self) -> float:
        return self.now

    def load(self, cpus: set[int]) -> CpuLoad:
        return CpuLoad(cpus, self, self.clock)


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """The cores that each thread may run on."""
    where: dict[int, set[int]] = {}

    def affinity(thread: int) -> set[int]:
        if thread not in where:
            raise ProcessLookupError(thread)
        return where[thread]

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    return where


def test_the_gpu_is_as_busy_as_others_make_it() -> None:
    assert GpuLoad(0, Nvml(busy=90, taken={os.getpid(): 60, 4: 30})).read() == pytest.approx(0.3)
    assert GpuLoad(0, Nvml(busy=30, taken={4: 30})).read() == pytest.approx(0.3)
    # The driver's two samplings differ by chance.
    assert GpuLoad(0, Nvml(busy=50, taken={os.getpid(): 55})).read() == 0.0


def test_where_the_driver_tells_no_processes_apart_all_counts() -> None:
    assert GpuLoad(0, Nvml(busy=90)).read() == pytest.approx(0.9)


def test_each_reading_asks_for_what_came_since_the_last() -> None:
    nvml = Nvml(busy=10, taken={1: 1})
    load = GpuLoad(0, nvml)
    load.read()
    load.read()
    assert nvml.asked_since == [0, 5]


@pytest.mark.parametrize("index", [1, -1])
def test_a_gpu_that_is_not_there_is_refused(index: int) -> None:
    with pytest.raises(MachineStateError, match=f"index {index}, expected less than 1"):
        GpuLoad(index, Nvml())


def test_the_cores_are_as_busy_as_they_were_since_the_last_sample(pinned: dict[int, set[int]]) -> None:
    cores = Cores()
    load = cores.load({0, 1})
    assert load.read() == 0.0
    cores.now, cores.times = 2.0, [Times(1.0, 0.5, 0.5, 0.0, 0.3), Times(0.0, 0.0, 1.0, 1.0, 0.0)]
    assert load.read() == pytest.approx(1.5 / 4)
    cores.now = 4.0
    assert load.read() == 0.0


def test_threads_of_this_process_that_are_pinned_to_the_cores_do_not_count(
    pinned: dict[int, set[int]],
) -> None:
    pinned |= {7: {1}, 8: {0, 1}}
    cores = Cores()
    cores.own = {7: 3.0, 8: 5.0, 9: 1.0}
    load = cores.load({1})
    cores.now, cores.own = 1.0, {7: 3.6, 8: 6.0, 9: 2.0}
    cores.times = [Times(1.0, 0.0, 0.0, 0.0, 0.0), Times(0.9, 0.0, 0.1, 0.0, 0.0)]
    assert load.read() == pytest.approx(0.3)
    # One that ended leaves the rest.
    cores.now, cores.own = 2.0, {8: 7.0}
    cores.times = [Times(2.0, 0.0, 0.0, 0.0, 0.0), Times(1.4, 0.0, 0.6, 0.0, 0.0)]
    assert load.read() == pytest.approx(0.5)


def test_over_too_short_a_time_the_load_stays(pinned: dict[int, set[int]]) -> None:
    cores = Cores()
    load = cores.load({0})
    cores.now, cores.times = 1.0, [Times(0.5, 0.0, 0.5, 0.0, 0.0)] * 2
    assert load.read() == 0.5
    cores.now, cores.times = 1.05, [Times(0.55, 0.0, 0.5, 0.0, 0.0)] * 2
    assert load.read() == 0.5
    cores.now, cores.times = 1.1, [Times(0.6, 0.0, 0.5, 0.0, 0.0)] * 2
    assert load.read() == pytest.approx(1.0)


@pytest.mark.parametrize("cpus", [set(), {2}, {-1, 0}])
def test_cores_that_are_not_there_are_refused(cpus: set[int]) -> None:
    with pytest.raises(MachineStateError, match="expected numbers below 2"):
        Cores().load(cpus)


def test_without_the_packages_the_loads_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pynvml", "psutil"):
        monkeypatch.setitem(sys.modules, name, None)
    state = MachineState.of_this()
    assert state.sample() == Loads(None, None)
    assert "pip install nvidia-ml-py" in state.problems["gpu"]
    assert "pip install psutil" in state.problems["cpu"]


def test_without_a_driver_or_a_gpu_the_rest_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, cores = Nvml(count=0), Cores()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "psutil", cores)
    state = MachineState.of_this(cpus=[0])
    assert state.problems == {"gpu": "there is no GPU"}
    assert state.sample() == Loads(None, 0.0)
    with pytest.raises(MachineStateError, match="expected less than 0"):
        MachineState.of_this(gpu=0, cpus=[0])
    nvml.fails = True
    assert "Driver Not Loaded" in MachineState.of_this(gpu=0, cpus=[0]).problems["gpu"]


@pytest.mark.parametrize(
    ("shown", "load"), [(None, 0.5), ("0,2", 0.5), ("2", 0.52), (" 1 ,0", 0.51), ("GPU-2,GPU-0", 0.52)]
)
def test_the_gpu_is_the_first_that_is_shown(
    monkeypatch: pytest.MonkeyPatch, shown: str | None, load: float
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(count=3, busy=50))
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert MachineState.of_this(cpus=[0]).sample().gpu == pytest.approx(load)


@pytest.mark.parametrize(
    ("shown", "problem"), [("", "there is no GPU"), ("-1", "there is no GPU"), ("GPU-7", "Not Found")]
)
def test_a_gpu_that_is_not_shown_is_not_watched(
    monkeypatch: pytest.MonkeyPatch, shown: str, problem: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(count=3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    state = MachineState.of_this(cpus=[0])
    assert problem in state.problems["gpu"] and state.sample().gpu is None


def test_a_reader_that_fails_is_told_and_asked_again() -> None:
    nvml = Nvml(busy=40)
    state = MachineState(GpuLoad(0, nvml), "no cores")
    nvml.fails = True
    assert state.sample() == Loads(None, None)
    assert state.problems == {"gpu": "NVMLError: GPU is lost", "cpu": "no cores"}
    nvml.fails = False
    assert state.sample().gpu == pytest.approx(0.4)
    assert state.problems == {"cpu": "no cores"}


def test_this_machine_tells_how_busy_its_cores_are() -> None:
    pytest.importorskip("psutil")
    core = max(os.sched_getaffinity(0))
    state = MachineState.of_this(cpus=[core])
    ended = threading.Event()

    def wait() -> None:
        os.sched_setaffinity(0, {core})
        ended.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        load = state.sample().cpu
    finally:
        ended.set()
        thread.join()
    assert load is not None and 0.0 <= load <= 1.0


def test_the_stand_in_has_what_the_package_has() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name in [name for name in vars(Nvml) if name.startswith("nvml")]:
        assert callable(getattr(pynvml, name)), name
    fields = [name for name, _ in pynvml.c_nvmlProcessUtilizationSample_t._fields_]
    assert {"pid", "smUtil", "timeStamp"} <= set(fields)
    assert "gpu" in [name for name, _ in pynvml.c_nvmlUtilization_t._fields_]
