"""The CUDA device over an interface that keeps a record of what is put on which stream, and the CPU."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from small_policy import INPUTS, small_policy

from vla_simd_ros.executors.base import Cancelled, Starting
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.settings import SettingError
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES

pytestmark = pytest.mark.needs_torch
pytest.importorskip("torch")


Record = list[tuple[str, str]]


class Stream:
    """Keeps what was put on it, with its name."""

    def __init__(self, record: Record, name: str) -> None:
        self.record, self.name = record, name

    def wait_event(self, event: Event) -> None:
        self.record.append((self.name, f"wait {event.number}"))


class Event:
    """Has a new number every time that it is recorded."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.number = 0

    def record(self, stream: Stream) -> None:
        self.cuda.events += 1
        self.number = self.cuda.events
        stream.record.append((stream.name, f"event {self.number}"))

    def synchronize(self) -> None:
        self.cuda.record.append(("host", f"wait {self.number}"))


class Cuda:
    """Stands in for torch.cuda: work is done at once, and its order kept."""

    def __init__(self) -> None:
        self.record: Record = []
        self.streams: list[str] = []
        self.current = "host"
        self.events = 0
        self.refuses = False

    def Stream(self, device: Any) -> Stream:
        self.streams.append(["computing", "copying"][len(self.streams)])
        return Stream(self.record, self.streams[-1])

    def Event(self) -> Any:
        return Event(self)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        outer, self.current = self.current, stream.name
        self.record.append((stream.name, "work"))
        try:
            yield
        finally:
            self.current = outer

    def CUDAGraph(self) -> Any:
        return Graph(self)

    @contextmanager
    def graph(self, graph: Graph, pool: Any, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        assert pool == "pool" and capture_error_mode == "thread_local"
        if self.refuses:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.record.append((stream.name, "recorded"))
        yield

    def graph_pool_handle(self) -> str:
        return "pool"

    def get_device_name(self, device: Any) -> str:
        return "a device"

    def max_memory_allocated(self, device: Any) -> int:
        return 1234


class Graph:
    """Replays nothing: what it would write is what the work wrote while it was recorded."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def replay(self) -> None:
        self.cuda.record.append((self.cuda.current, "replay"))


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


@pytest.fixture
def cuda() -> Cuda:
    return Cuda()


@pytest.fixture
def device(torch: Any, cuda: Cuda) -> Any:
    from vla_simd_ros.executors.torch_device import CudaDevice

    return CudaDevice(cuda, torch.device("cpu"), torch.empty)


def outputs(executable: Any) -> dict[str, np.ndarray]:
    results: dict[str, np.ndarray] = {}
    for lifetime in RUNTIME_LIFETIMES:
        results |= executable.run(lifetime, INPUTS[lifetime])
    return results


def loaded(torch: Any, device: Any) -> Any:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    return TorchExecutor(torch.float64, device=device).load(small_policy())


def test_both_ways_give_the_reference_s_results(torch: Any, device: Any) -> None:
    expected = outputs(ReferenceExecutor().load(small_policy()))
    for where in ("cpu", device):
        executable = loaded(torch, where)
        assert isinstance(executable, Starting)
        for _ in range(3):  # launched and recorded, replayed, replayed
            for name, value in outputs(executable).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-12)


def test_computing_waits_for_inputs_and_the_host_for_it(torch: Any, device: Any, cuda: Cuda) -> None:
    executable = loaded(torch, device)
    cuda.record.clear()
    executable.start(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    # Of one input: copied, waited for, computed, waited for; then sent, the copy after the results.
    arrived, computed, made, sent = cuda.events - 3, cuda.events - 2, cuda.events - 1, cuda.events
    steps = [
        ("copying", f"event {arrived}"),
        ("computing", f"wait {arrived}"),
        ("computing", f"event {computed}"),
        ("host", f"wait {computed}"),
        ("computing", f"event {made}"),
        ("copying", f"wait {made}"),
        ("copying", f"event {sent}"),
    ]
    places = [cuda.record.index(step) for step in steps]
    assert places == sorted(places)
    assert ("host", f"wait {sent}") not in cuda.record, "the transfer is not waited for"


def test_results_are_waited_for_when_they_are_wanted(torch: Any, device: Any, cuda: Cuda) -> None:
    executable = loaded(torch, device)
    late = executable.start(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    sent = cuda.events
    values = late.wait()
    assert cuda.record[-1] == ("host", f"wait {sent}")
    assert late.wait().keys() == values.keys()


def test_results_on_their_way_are_not_overwritten(torch: Any, device: Any, cuda: Cuda) -> None:
    cuda.refuses = True  # what this one records writes the same again
    executable = loaded(torch, device)
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    given = INPUTS[Lifetime.QUERY]
    other = {n: v if v.dtype != np.float32 else v + np.float32(1) for n, v in given.items()}
    expected = [executable.run(Lifetime.QUERY, values) for values in (given, other)]
    late = [executable.start(Lifetime.QUERY, values) for values in (given, other)]
    for found, wanted in zip(reversed(late), reversed(expected), strict=True):
        for name, value in found.wait().items():
            np.testing.assert_array_equal(value, wanted[name])


def test_buffers_of_frames_that_were_dropped_are_used_again(torch: Any, device: Any) -> None:
    executable = loaded(torch, device)
    made: list[Any] = []
    device._pinned = lambda *shape, **kind: made.append(shape) or torch.empty(*shape, **kind)
    for _ in range(5):
        executable.start(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    first = len(made)
    held = [executable.start(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE]) for _ in range(3)]
    assert len(made) == 3 * first
    assert all(late.wait() is not None for late in held)


def test_a_program_is_launched_and_recorded_and_then_replayed(torch: Any, device: Any, cuda: Cuda) -> None:
    executable = loaded(torch, device)
    counts: list[Callable[[], int]] = [
        lambda kind=kind: [what for _, what in cuda.record].count(kind)  # type: ignore[misc]
        for kind in ("recorded", "replay")
    ]
    found = []
    for _ in range(4):
        executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
        found.append(tuple(count() for count in counts))
    assert found == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert ("computing", "replay") in cuda.record


def test_a_program_that_cannot_be_recorded_is_launched(torch: Any, device: Any, cuda: Cuda) -> None:
    executable = loaded(torch, device)
    cuda.refuses = True
    expected = outputs(ReferenceExecutor().load(small_policy()))
    for _ in range(3):
        got = outputs(executable)
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-12)
    assert all("capturing" in reason for reason in executable.unrecorded.values())
    assert ("computing", "replay") not in cuda.record


def test_whatever_the_device_does_late_is_waited_for(torch: Any) -> None:
    """Frames whose results are wanted while others are under way, some of them never."""
    from late_cuda import LateCuda

    from vla_simd_ros.executors.torch_device import CudaDevice

    late = loaded(torch, CudaDevice(LateCuda(), torch.device("cpu"), torch.empty))
    here = loaded(torch, "cpu")
    rng = np.random.default_rng(2)
    for _ in range(3):
        for executable in (late, here):
            executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
        frames = [
            {n: (v * rng.uniform(0.5, 1.5)).astype(v.dtype) for n, v in INPUTS[Lifetime.QUERY].items()}
            for _ in range(5)
        ]
        expected = [here.run(Lifetime.QUERY, frame) for frame in frames]
        results = [late.start(Lifetime.QUERY, frame) for frame in frames[:3]]
        del results[1]  # a frame that was dropped
        results += [late.start(Lifetime.QUERY, frame) for frame in frames[3:]]
        for found, wanted in zip(results, [expected[i] for i in (0, 2, 3, 4)], strict=True):
            for name, value in found.wait().items():
                np.testing.assert_array_equal(value, wanted[name])
        assert any(np.any(expected[0][name] != expected[1][name]) for name in expected[0])
    assert not late.unrecorded


class Elsewhere:
    """A device whose memory is not the host's: PyTorch's meta tensors, which have shapes and no values."""

    name = "elsewhere"

    def place(self, value: Any) -> Any:
        return value.to("meta")

    def inlet(self, target: Any) -> Callable[[Any], None]:
        return lambda value: None

    def recorded(self, work: Callable[[], None]) -> None:
        return None

    def compute(self, work: Callable[[], None]) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        class Watch(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
            def __torch_dispatch__(
                self, operation: Any, types: Any, given: Any = (), named: Any = None
            ) -> Any:
                results = operation(*given, **(named or {}))
                for result in tree_leaves(results):
                    where = getattr(result, "device", None)
                    assert where is None or where.type == "meta" or not result.dim(), operation
                return results

        with Watch():
            work()


def test_operations_compute_where_their_operands_are(torch: Any) -> None:
    """Nothing is made on the host, and no value is asked for, which a recording could not wait for."""
    from operation_samples import SAMPLES, sample_policy

    from vla_simd_ros.executors.torch_executor import TorchExecutor

    for name in SAMPLES:
        executable = TorchExecutor(device=Elsewhere()).load(sample_policy(name)[0])  # type: ignore[arg-type]
        executable.again(Lifetime.QUERY)


def test_what_a_thread_sets_up_is_there_when_its_work_is_recorded(
    torch: Any, device: Any, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As libraries do: a thread that has not computed before cannot begin to in a recording."""
    ready: list[int] = []
    compute, recorded = device.compute, device.recorded

    def computing(work: Callable[[], None]) -> None:
        ready.append(threading.get_ident())
        compute(work)

    def recording(work: Callable[[], None]) -> Any:
        assert threading.get_ident() in ready
        return recorded(work)

    monkeypatch.setattr(device, "compute", computing)
    monkeypatch.setattr(device, "recorded", recording)
    executable = loaded(torch, device)
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    with ThreadPoolExecutor(1) as other:
        other.submit(executable.run, Lifetime.EPISODE, INPUTS[Lifetime.EPISODE]).result()
    assert len(set(ready)) == 2
    assert [what for _, what in cuda.record].count("replay") == 1


def test_a_recording_that_fails_leaves_the_thread_its_stream(torch: Any, device: Any, cuda: Cuda) -> None:
    executable = loaded(torch, device)

    @contextmanager
    def graph(*given: Any, **named: Any) -> Iterator[None]:
        cuda.current = "computing"  # and what ends the recording raises before it puts that back
        yield
        raise RuntimeError("operation failed due to a previous error during capture")

    cuda.graph = graph  # type: ignore[method-assign, assignment]
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    assert cuda.current == "host" and executable.unrecorded


def test_policies_share_constants_on_a_device(torch: Any, device: Any) -> None:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    placed: list[int] = []
    place = device.place
    device.place = lambda value: placed.append(value.numel()) or place(value)
    executor = TorchExecutor(device=device)
    policy = small_policy()
    one = executor.load(policy)
    first = len(placed)
    two = executor.load(policy)
    constants = sum(len(p.constants) for p in policy.programs.values())
    assert constants > 0 and len(placed) - first <= first - constants
    assert one is not two


def test_a_device_names_itself_and_what_it_used(device: Any) -> None:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    executor = TorchExecutor(device=device)
    assert executor.isa == "torch cpu (a device)"
    assert (executor.threads, executor.peak_bytes) == (0, 1234)
    here = TorchExecutor()
    assert here.isa == "torch" and here.threads > 0 and here.peak_bytes is None


def test_a_run_that_is_cancelled_leaves_nothing(torch: Any, device: Any) -> None:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    executor = TorchExecutor(device=device)
    executable = executor.load(small_policy())
    executor.cancel()
    with pytest.raises(Cancelled):
        executable.start(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    executor.resume()
    assert executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE]) is not None


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("gpu", "expected auto, cpu, cuda"),
        ("cuda:x", "expected auto, cpu, cuda"),
        ("cuda:99", "device is 'cuda:99', but PyTorch"),
    ],
)
def test_a_device_that_is_not_there_is_refused(name: str, complaint: str) -> None:
    from vla_simd_ros.executors.torch_device import make_device

    with pytest.raises(SettingError, match=complaint):
        make_device(name)


def test_an_executor_s_name_may_have_a_device() -> None:
    from vla_simd_ros.executors.base import Metered
    from vla_simd_ros.executors.settings import EngineSettings
    from vla_simd_ros.inference import make_executor

    executor = make_executor("torch:cpu", EngineSettings())
    assert executor.isa == "torch" and isinstance(executor, Metered)
    with pytest.raises(SettingError, match="executor 'simd' has no devices, got 'cuda:0'"):
        make_executor("simd:cuda:0", EngineSettings())
    with pytest.raises(SettingError, match="device is 'cuda:99'"):
        make_executor("torch:cuda:99", EngineSettings())


@pytest.mark.parametrize(("there", "expected"), [(False, "HostDevice"), (True, "CudaDevice")])
def test_a_cuda_device_is_taken_where_there_is_one(
    torch: Any, cuda: Cuda, monkeypatch: pytest.MonkeyPatch, there: bool, expected: str
) -> None:
    from vla_simd_ros.executors.torch_device import make_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name in ("Stream", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    before = torch.backends.cudnn.allow_tf32
    try:
        assert type(make_device("auto")).__name__ == expected
        assert torch.backends.cudnn.allow_tf32 == (before and not there)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_the_stand_in_has_what_pytorch_has(torch: Any) -> None:
    for name in [name for name in vars(Cuda) if not name.startswith("_")]:
        assert hasattr(torch.cuda, name), name
    for kind, own in (("Stream", Stream), ("Event", Event), ("CUDAGraph", Graph)):
        for name in [name for name in vars(own) if not name.startswith("_")]:
            assert hasattr(getattr(torch.cuda, kind), name), f"{kind}.{name}"
    taken = inspect.signature(torch.cuda.graph).parameters
    assert {"pool", "stream", "capture_error_mode"} <= set(taken)
