"""Where the threads of either side run: which cores, and how far they stand back for others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

LARGEST_NICE = 19

_TOPOLOGY = Path("/sys/devices/system/cpu")


class PlacementError(ValueError):
    """Cores that cannot be given as they were asked for; says which and why."""


@dataclass(frozen=True)
class Placement:
    """The cores of a thread, and its nice level, up to 19 for all others first; where the process itself
    stands back farther, as it does."""

    cpus: tuple[int, ...]
    nice: int = 0
    _taken: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def take(self) -> None:
        """Let the calling thread, and those that it starts, run there; nothing where it does already."""
        if getattr(self._taken, "done", False):
            return
        os.sched_setaffinity(0, self.cpus)
        thread = threading.get_native_id()
        if self.nice > os.getpriority(os.PRIO_PROCESS, thread):
            os.setpriority(os.PRIO_PROCESS, thread, self.nice)
        self._taken.done = True

    def run(self, make: Callable[[], T]) -> T:
        """``make()`` by a thread that runs there: so do the threads that it starts."""
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                self.take()
                results.append(make())
            except BaseException as error:  # raised again where it was asked for
                errors.append(error)

        thread = threading.Thread(target=work, name="placed")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]


@dataclass(frozen=True)
class Side:
    """What one side was told: its cores (none: any that are free) and threads (0: one for each core)."""

    cpus: tuple[int, ...] = ()
    threads: int = 0


def assign_cores(
    available: Collection[int], reserved: Collection[int], prefix: Side, suffix: Side
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Disjoint cores of ``available`` for both sides, none of them ``reserved``.

    A side that names none gets as many as it has threads, the prefix the first, the suffix the last; where
    neither counts, the prefix gets half. A machine of one core gives it to both. Raises PlacementError.
    """
    free = _free(available, reserved)
    for name, side in (("prefix", prefix), ("suffix", suffix)):
        _check(name, side, free, reserved)
    if both := sorted(set(prefix.cpus) & set(suffix.cpus)):
        raise PlacementError(f"prefix_cpus and suffix_cpus both have {both}, expected different CPUs")
    if len(free) == 1 and not prefix.cpus and not suffix.cpus:
        return (free[0],), (free[0],)
    rest = [cpu for cpu in free if cpu not in prefix.cpus and cpu not in suffix.cpus]
    first = prefix.cpus or tuple(rest[: prefix.threads or _uncounted(len(rest), suffix)])
    rest = [cpu for cpu in rest if cpu not in first]
    second = suffix.cpus or tuple(rest[-suffix.threads :])
    for name, side, cpus in (("prefix", prefix, first), ("suffix", suffix, second)):
        if not cpus or len(cpus) < side.threads:
            wanted = f"{name}_threads is {side.threads}" if side.threads else f"the {name} needs a CPU"
            raise PlacementError(
                f"{wanted}, but the CPUs left for it are {list(cpus)}: of {sorted(available)}, reserved_cpus "
                f"has {sorted(reserved)} and the other side the rest"
            )
    return first, second


def _uncounted(rest: int, suffix: Side) -> int:
    """How many of ``rest`` cores a prefix gets that names neither cores nor threads."""
    if suffix.cpus:
        return rest
    return rest - suffix.threads if suffix.threads else rest // 2


def _free(available: Collection[int], reserved: Collection[int]) -> list[int]:
    # What this process may not use, as in a cpuset, can be reserved all the same; but a number that no CPU
    # has is another one's that was meant.
    unknown = [cpu for cpu in reserved if cpu not in available and not (_TOPOLOGY / f"cpu{cpu}").exists()]
    if unknown and _TOPOLOGY.exists():
        raise PlacementError(f"reserved_cpus has {sorted(unknown)}, expected CPUs that this machine has")
    free = [cpu for cpu in by_core(available) if cpu not in reserved]
    if not free:
        raise PlacementError(
            f"reserved_cpus has {sorted(reserved)}, all of {sorted(available)}, expected some to be left"
        )
    return free


def _check(name: str, side: Side, free: Sequence[int], reserved: Collection[int]) -> None:
    if kept := sorted(set(side.cpus) & set(reserved)):
        raise PlacementError(f"{name}_cpus has {kept}, which reserved_cpus has too, expected others")
    if missing := sorted(set(side.cpus) - set(free)):
        raise PlacementError(f"{name}_cpus has {missing}, expected some of {sorted(free)}")


def by_core(cpus: Collection[int], topology: Path = _TOPOLOGY) -> list[int]:
    """``cpus`` so that those of one core, and those of one package, stand beside each other."""

    def place(cpu: int) -> tuple[int, int, int]:
        folder = topology / f"cpu{cpu}" / "topology"
        return _number(folder / "physical_package_id"), _number(folder / "core_id", cpu), cpu

    return sorted(set(cpus), key=place)


def _number(path: Path, otherwise: int = 0) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise
