"""One runner in a process of its own, driven a turn at a time and stopped in between.

Runtimes keep their worker threads spinning for a while after a query, each in its own way, and there are
never more cores than threads to spare for that. So each runner has a process, which the kernel stops
(``SIGSTOP``) whenever it is another one's turn: nothing of it can run then, however it waits, and no
runtime has to be measured with other than its usual way of waiting. The clock is read inside the process,
around the query alone.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from vla_simd_ros.benchmarks.backend import (
    Backend,
    BenchmarkError,
    Calibrated,
    Profiled,
    Setup,
    Spelling,
    Staged,
    resolve,
)
from vla_simd_ros.benchmarks.decoding import DecodingSummary, summarize_decoding
from vla_simd_ros.benchmarks.disturbances import Counters, Disturbance, count_disturbances
from vla_simd_ros.benchmarks.isa_limit import limiting_variables
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.decoding.base import Decoded
from vla_simd_ros.graph.ir import Array

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.cases import Case

Clock = Callable[[], int]
Waiting = Callable[[float], None]

_HEARTBEAT_S = 4.0
_PATIENCE_S = 3.0
_PR_SET_PDEATHSIG = 1


class Turns:
    """What a runner does in its turn, on its backend; ``clock`` counts nanoseconds, ``counters`` what
    disturbs it."""

    def __init__(
        self,
        backend: Backend,
        cases: Sequence[Case],
        clock: Clock = time.perf_counter_ns,
        counters: Counters = count_disturbances,
    ) -> None:
        self._backend = backend
        self._cases = cases
        self._clock = clock
        self._counters = counters
        self._disturbances: list[Disturbance] = []
        self._spent_ms: list[Mapping[str, float]] = []
        self._decoded: list[Decoded] = []

    def answers(self, count: int) -> list[Array]:
        """The actions for the first ``count`` cases."""
        return [self._backend.query(case) for case in self._cases[:count]]

    def time_queries(self, first: int, count: int) -> list[float]:
        """Milliseconds of ``count`` queries, on case ``first`` and those that follow it in a ring."""
        return [self._time(index) for index in range(first, first + count)]

    def soak(self, seconds: float) -> list[tuple[float, float]]:
        """Queries without pause for ``seconds``: (end of the query in s since the start, its time in ms)."""
        start = self._clock()
        samples: list[tuple[float, float]] = []
        while (self._clock() - start) / 1e9 < seconds:
            elapsed_ms = self._time(len(samples))
            samples.append(((self._clock() - start) / 1e9, elapsed_ms))
        return samples

    def profile(self, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries, for a backend that can tell."""
        if not isinstance(self._backend, Profiled):
            raise BenchmarkError("cannot tell the time of its operations")
        return self._backend.profile(self._cases[0], queries)

    def programs(self, count: int) -> dict[str, float]:
        """Median milliseconds of each program over the last ``count`` queries that were timed; empty for a
        backend that cannot tell."""
        last = self._spent_ms[-count:]
        names = dict.fromkeys(name for spent in last for name in spent)
        return {name: statistics.median(spent[name] for spent in last) for name in names}

    def decoding(self, count: int) -> DecodingSummary | None:
        """How the tokens of the last ``count`` queries that were timed were decoded; None where there are
        none."""
        return summarize_decoding(self._decoded[-count:]) if self._decoded else None

    def disturbances(self, count: int) -> list[Disturbance]:
        """What happened around each of the last ``count`` queries that were timed."""
        return self._disturbances[-count:]

    def _time(self, index: int) -> float:
        case = self._cases[index % len(self._cases)]
        before = self._counters()
        start = self._clock()
        self._backend.query(case)
        elapsed_ms = (self._clock() - start) / 1e6
        self._disturbances.append(self._counters() - before)
        if isinstance(self._backend, Staged):
            self._spent_ms.append(self._backend.spent_ms)
        if isinstance(self._backend, Spelling) and self._backend.decoded is not None:
            self._decoded.append(self._backend.decoded)
        return elapsed_ms


class ChildRunner:
    """A runner in its own process. A context manager: the process ends with it.

    ``factory`` names the callable that makes the backend (``module:callable``), which is asked ``cases``,
    those of a policy or whatever else it answers. ``waiting`` is called with the seconds waited so far, every
    few seconds. Raises ``BenchmarkError`` naming the runner when its backend cannot be made, a query fails,
    or its process ends.
    """

    def __init__(
        self,
        name: str,
        factory: str,
        setup: Setup,
        cases: Sequence[Any],
        waiting: Waiting = lambda _: None,
    ) -> None:
        self.name = name
        self._waiting = waiting
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, factory, setup, list(cases)), name=f"bench {name}"
        )
        self._process.start()
        theirs.close()
        try:
            self.details: Mapping[str, str] = self._receive()
        except BaseException:
            self.close()
            raise
        self._stop()

    def answers(self, count: int) -> list[Array]:
        """The actions for the first ``count`` cases."""
        result: list[Array] = self._call("answers", count)
        return result

    def time_queries(self, first: int, count: int) -> list[float]:
        """Milliseconds of ``count`` queries, on case ``first`` and those that follow."""
        result: list[float] = self._call("time_queries", first, count)
        return result

    def soak(self, seconds: float) -> list[tuple[float, float]]:
        """(end in s, time in ms) of each query, asked without pause for ``seconds``."""
        result: list[tuple[float, float]] = self._call("soak", seconds)
        return result

    def profile(self, queries: int) -> list[OpTime]:
        """Time of each operation, for a runner whose backend can tell."""
        result: list[OpTime] = self._call("profile", queries)
        return result

    def programs(self, count: int) -> dict[str, float]:
        """Median milliseconds of each program over the last ``count`` queries that were timed."""
        result: dict[str, float] = self._call("programs", count)
        return result

    def decoding(self, count: int) -> DecodingSummary | None:
        """How the tokens of the last ``count`` queries that were timed were decoded."""
        result: DecodingSummary | None = self._call("decoding", count)
        return result

    def disturbances(self, count: int) -> list[Disturbance]:
        """What happened around each of the last ``count`` queries that were timed."""
        result: list[Disturbance] = self._call("disturbances", count)
        return result

    def close(self) -> None:
        """End the process: it leaves by itself when it finds the connection closed, or is killed."""
        self._connection.close()
        self._signal(signal.SIGCONT)
        self._process.join(_PATIENCE_S)
        self._process.kill()
        self._process.join()

    def __enter__(self) -> ChildRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, *args: Any) -> Any:
        with self._turn():
            try:
                self._connection.send((method, args))
            except BrokenPipeError:
                raise self._ended() from None
            return self._receive()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        pid = self._process.pid
        if pid is not None and self._process.is_alive():
            os.kill(pid, number)

    def _receive(self) -> Any:
        start = time.monotonic()
        while not self._connection.poll(_HEARTBEAT_S):
            self._waiting(time.monotonic() - start)
        try:
            failed, value = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended() from None
        if failed:
            raise BenchmarkError(f"runner {self.name!r}: {value}")
        return value

    def _ended(self) -> BenchmarkError:
        self._process.join()
        return BenchmarkError(f"runner {self.name!r}: its process ended with code {self._process.exitcode}")


def _serve(connection: Connection, factory: str, setup: Setup, cases: list[Case]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    end_with_parent()
    if setup.threads:  # read by OpenMP and BLAS when they are loaded, which making the backend does
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(setup.threads)
    if setup.held_to:
        os.environ.update(limiting_variables(setup.held_to))
    try:
        backend = resolve(factory)(setup)
        if isinstance(backend, Calibrated):
            backend.calibrate(cases)
        turns = Turns(backend, cases)
        connection.send((False, dict(backend.details)))
        while True:
            method, args = connection.recv()
            connection.send((False, getattr(turns, method)(*args)))
    except (EOFError, BrokenPipeError):
        return  # the parent has closed its end
    except Exception as error:
        connection.send((True, _describe(error)))


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, BenchmarkError) else f"{type(error).__name__}: {error}"


def end_with_parent() -> None:
    """A stopped process would outlive a parent that is killed, so the kernel kills it along."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
