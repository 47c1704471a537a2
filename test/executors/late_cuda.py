"""Stands in for torch.cuda on the host: copies on the second stream happen as late as they may, when somebody
waits for them, and a recording is replayed from the addresses that it was made with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_IN_ORDER = threading.RLock()


class LateStream:
    """Copies that were put on it and have not happened, and the events between them."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def wait_event(self, event: LateEvent) -> None:
        event.synchronize()


class LateEvent:
    """Waiting for it lets what is before it on its stream happen."""

    def __init__(self) -> None:
        self._stream: LateStream | None = None
        self._mark = object()

    def record(self, stream: LateStream) -> None:
        with _IN_ORDER:
            self._stream, self._mark = stream, object()
            stream.waiting.append(self._mark)

    def synchronize(self) -> None:
        with _IN_ORDER, torch.inference_mode():
            if self._stream is None or self._mark not in self._stream.waiting:
                return
            while (first := self._stream.waiting.pop(0)) is not self._mark:
                if isinstance(first, tuple):
                    first[0].copy_(first[1])


class _Later(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    def __init__(self, stream: LateStream) -> None:
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        assert operation is torch.ops.aten.copy_.default, "only copies are put on this stream"
        with _IN_ORDER:
            self._stream.waiting.append(given[:2])
        return given[0]


class _Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    def __init__(self, graph: LateGraph) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(self, operation: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        result = operation(*given, **(named or {}))
        self._graph.operations.append((operation, given, named or {}, result))
        return result


class LateGraph:
    """Operations with their operands and results."""

    def __init__(self) -> None:
        self.operations: list[Any] = []

    def replay(self) -> None:
        with torch.inference_mode():
            for operation, given, named, result in self.operations:
                again = operation(*given, **named)
                if operation._schema.is_mutable:
                    continue
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class LateCuda:
    """The parts of torch.cuda that a device uses; its second stream is the late one."""

    Event = LateEvent
    CUDAGraph = LateGraph

    def __init__(self) -> None:
        self.streams: list[LateStream] = []

    def Stream(self, device: Any) -> LateStream:
        self.streams.append(LateStream())
        return self.streams[-1]

    @contextmanager
    def stream(self, stream: LateStream) -> Iterator[None]:
        if stream is self.streams[0]:
            yield
            return
        with _Later(stream):
            yield

    @contextmanager
    def graph(
        self, graph: LateGraph, pool: Any, stream: LateStream, capture_error_mode: str
    ) -> Iterator[None]:
        with _Recorder(graph):
            yield

    def graph_pool_handle(self) -> int:
        return 0
