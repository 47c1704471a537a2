"""Where PyTorch computes: on the CPU, or on a CUDA device with its copies on a stream of their own.

Both keep a program's inputs and results in buffers that stay where they are, so that what a program does can
be recorded once and replayed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from vla_simd_ros.executors.settings import SettingError
from vla_simd_ros.graph.ir import Array

CPU = "cpu"
AUTO = "auto"
"""The first CUDA device where there is one, and the CPU elsewhere."""

Work = Callable[[], None]
Inlet = Callable[[Array], None]
"""Brings a value into a buffer of the device."""


class Delivery(Protocol):
    """Results on their way to the host."""

    def wait(self) -> list[Array]:
        """Copies of the results, once they have come."""
        ...


class Device(Protocol):
    """What an executor does with the device that it computes on; programs run one after the other."""

    @property
    def name(self) -> str:
        """What computes, for reports."""
        ...

    def place(self, value: torch.Tensor) -> torch.Tensor:
        """The same values in the device's memory."""
        ...

    def inlet(self, target: torch.Tensor) -> Inlet:
        """The way into a buffer."""
        ...

    def compute(self, work: Work) -> None:
        """Do ``work`` after all that was brought in, and wait until it is done."""
        ...

    def recorded(self, work: Work) -> Work | None:
        """What does ``work`` again without its launches, which are as much as a small network's work; None
        where there is no such thing. Raises RuntimeError for work that cannot be recorded."""
        ...

    def deliver(self, results: Sequence[torch.Tensor]) -> Delivery:
        """Send results to the host; their buffers may be written to again at once."""
        ...

    def read(self, value: torch.Tensor) -> Array:
        """A copy of a tensor of the device."""
        ...

    def peak_bytes(self) -> int | None:
        """The most memory that was in use on the device; None where nobody counts."""
        ...


def make_device(name: str) -> Device:
    """The device of PyTorch's ``name``: cpu, cuda, or cuda:0 and so on; auto. Raises SettingError."""
    if name == AUTO:
        name = "cuda" if torch.cuda.is_available() else CPU
    if name == CPU:
        return HostDevice()
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise SettingError(f"device is '{name}', expected {AUTO}, {CPU}, cuda, or cuda: and a number")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(number or 0)
    if index >= count:
        found = f"sees {count} CUDA devices" if count else "sees no CUDA device here"
        raise SettingError(f"device is '{name}', but PyTorch {torch.__version__} {found}")
    # Products of single precision as everywhere else.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    pinned = functools.partial(torch.empty, pin_memory=True)
    return CudaDevice(torch.cuda, torch.device("cuda", index), pinned)


class HostDevice:
    """The CPU, whose memory is the host's."""

    name = ""

    def place(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def inlet(self, target: torch.Tensor) -> Inlet:
        def bring(value: Array) -> None:
            target.copy_(torch.from_numpy(np.array(value)))

        return bring

    def compute(self, work: Work) -> None:
        work()

    def recorded(self, work: Work) -> Work | None:
        return None

    def deliver(self, results: Sequence[torch.Tensor]) -> Delivery:
        return _Here([self.read(value) for value in results])

    def read(self, value: torch.Tensor) -> Array:
        return np.array(value.numpy())

    def peak_bytes(self) -> int | None:
        return None


class _Here:
    def __init__(self, values: list[Array]) -> None:
        self._values = values

    def wait(self) -> list[Array]:
        return self._values


class CudaDevice:
    """A CUDA device: ``cuda`` is the module torch.cuda, ``pinned`` makes host memory that it copies from and
    to by itself."""

    def __init__(
        self,
        cuda: Any,
        device: torch.device,
        pinned: Callable[..., torch.Tensor],
    ) -> None:
        self._cuda = cuda
        self._device = device
        self._pinned = pinned
        self._computing, self._copying = cuda.Stream(device=device), cuda.Stream(device=device)
        self._free: dict[tuple[tuple[torch.Size, torch.dtype], ...], list[_Slot]] = {}
        # Intermediate results of all recordings may share memory: nothing of one is read after another began.
        self._pool = cuda.graph_pool_handle()

    @property
    def name(self) -> str:
        return f"{self._device} ({self._cuda.get_device_name(self._device)})"

    def place(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self._device)

    def inlet(self, target: torch.Tensor) -> Inlet:
        staged, arrived = self._pinned(target.shape, dtype=target.dtype), self._cuda.Event()

        def bring(value: Array) -> None:
            # What was staged before has arrived: the program that reads it has been waited for.
            np.copyto(staged.numpy(), value, casting="same_kind")
            with self._cuda.stream(self._copying):
                target.copy_(staged, non_blocking=True)
            arrived.record(self._copying)
            self._computing.wait_event(arrived)

        return bring

    def compute(self, work: Work) -> None:
        with self._cuda.stream(self._computing):
            work()
        done = self._cuda.Event()
        done.record(self._computing)
        done.synchronize()

    def recorded(self, work: Work) -> Work | None:
        graph = self._cuda.CUDAGraph()
        recording = self._cuda.graph(
            graph, pool=self._pool, stream=self._computing, capture_error_mode="thread_local"
        )
        # The stream around it, which a recording that fails would not give back to the thread.
        with self._cuda.stream(self._computing), recording:
            work()
        replay: Work = graph.replay
        return replay

    def deliver(self, results: Sequence[torch.Tensor]) -> Delivery:
        slot = self._slot(results)
        with self._cuda.stream(self._computing):
            # Its last delivery has to have left it.
            self._computing.wait_event(slot.sent)
            for own, value in zip(slot.own, results, strict=True):
                own.copy_(value)
        made = self._cuda.Event()
        made.record(self._computing)
        with self._cuda.stream(self._copying):
            self._copying.wait_event(made)
            for host, own in zip(slot.host, slot.own, strict=True):
                host.copy_(own, non_blocking=True)
        slot.sent.record(self._copying)
        return _Delivery(slot)

    def read(self, value: torch.Tensor) -> Array:
        return np.array(value.cpu().numpy())

    def peak_bytes(self) -> int | None:
        return int(self._cuda.max_memory_allocated(self._device))

    def _slot(self, results: Sequence[torch.Tensor]) -> _Slot:
        """Buffers for these results on both sides that nobody waits for."""
        free = self._free.setdefault(tuple((value.shape, value.dtype) for value in results), [])
        if free:
            return free.pop()
        return _Slot(
            [torch.empty_like(value) for value in results],
            [self._pinned(value.shape, dtype=value.dtype) for value in results],
            self._cuda.Event(),
            free,
        )


class _Slot:
    """Buffers that results pass through, and the event of their having come."""

    def __init__(
        self, own: list[torch.Tensor], host: list[torch.Tensor], sent: Any, free: list[_Slot]
    ) -> None:
        self.own, self.host, self.sent = own, host, sent
        self._free = free

    def release(self) -> None:
        self._free.append(self)


class _Delivery:
    """Owns its slot until it has been waited for, or forgotten: a frame may be dropped on its way."""

    def __init__(self, slot: _Slot) -> None:
        self._slot: _Slot | None = slot
        self._values: list[Array] = []

    def wait(self) -> list[Array]:
        if self._slot is not None:
            self._slot.sent.synchronize()
            self._values = [np.array(host.numpy()) for host in self._slot.host]
            self._release()
        return self._values

    def _release(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()

    def __del__(self) -> None:
        self._release()
