"""What the system did around a query: causes of a slow one that lie outside the process, or in its memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from dataclasses import astuple, dataclass

from vla_simd_ros.machine import read_text

_BUSY = (0, 1, 2, 5, 6)  # user, nice, system and interrupts of a line of /proc/stat
_STOLEN = 7


@dataclass(frozen=True)
class Disturbance:
    """How often threads of the process were ``preempted``, taken off a core by others, and ``slept`` by
    themselves; how many page ``faults`` it had; and on all cores together the milliseconds ``stolen_ms`` in
    which the hypervisor let nothing run, and ``others_ms`` in which other processes ran. The last two are
    counted in steps of the kernel's clock, often of 10 ms."""

    preempted: float = 0.0
    slept: float = 0.0
    faults: float = 0.0
    stolen_ms: float = 0.0
    others_ms: float = 0.0

    def __sub__(self, earlier: Disturbance) -> Disturbance:
        return Disturbance(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))


Counters = Callable[[], Disturbance]


def count_disturbances() -> Disturbance:
    """Everything since the process started, or the machine."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    own_ms = (usage.ru_utime + usage.ru_stime) * 1e3
    busy_ms, stolen_ms = _machine_ms(read_text("/proc/stat"))
    return Disturbance(
        usage.ru_nivcsw, usage.ru_nvcsw, usage.ru_minflt + usage.ru_majflt, stolen_ms, busy_ms - own_ms
    )


def _machine_ms(stat: str) -> tuple[float, float]:
    """Milliseconds in which the cores were busy, and in which they were kept from it; zeros where untold."""
    fields = stat.partition("\n")[0].split()[1:]
    if len(fields) <= _STOLEN:
        return 0.0, 0.0
    tick_ms = 1e3 / os.sysconf("SC_CLK_TCK")
    ticks = [int(field) for field in fields]
    return sum(ticks[i] for i in _BUSY) * tick_ms, ticks[_STOLEN] * tick_ms
