"""The ceilings of a processor: multiply-adds per second, and bytes per second from each level of memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.benchmarks.work import Work

_PEAK_S = 0.3
_PEAK_NOW_S = 0.003
_SIZES = tuple(1 << power for power in range(14, 29, 2))
"""16 KiB to 256 MiB: from the first-level cache to memory."""
_READS = 7
_EXPONENTIAL_FLOPS = {"avx512": 8}
_EXPONENTIAL_FLOPS_ELSEWHERE = 10
"""Of one exponential as this engine computes it: four multiply-adds beside a table, or five. Its additions
and shifts, more than as many again, may run beside those and do not count."""


@dataclass(frozen=True)
class Roofline:
    """Measured rates: ``peaks`` GFLOP/s of multiply-adds by instruction set, ``isa`` the one in use, and
    ``bandwidth`` GB/s that are read over and over from so many bytes."""

    isa: str
    threads: int
    peaks: Mapping[str, float]
    bandwidth: Mapping[int, float]

    @property
    def peak_gflops(self) -> float:
        """Of the instruction set in use, by all threads."""
        return self.peaks[self.isa]

    def at_peak(self, gflops: float) -> Roofline:
        """The same with another rate of multiply-adds of the instruction set in use."""
        return replace(self, peaks={**self.peaks, self.isa: gflops})

    @property
    def memory_gb_per_s(self) -> float:
        """From what fits into no cache."""
        return self.bandwidth[max(self.bandwidth)]

    def gb_per_s(self, nbytes: float) -> float:
        """For a working set of so many bytes: between the measured sizes, on a logarithmic scale."""
        sizes = sorted(self.bandwidth)
        if nbytes <= sizes[0]:
            return self.bandwidth[sizes[0]]
        for below, above in itertools.pairwise(sizes):
            if nbytes <= above:
                part = math.log(nbytes / below) / math.log(above / below)
                return self.bandwidth[below] * (1 - part) + self.bandwidth[above] * part
        return self.memory_gb_per_s

    def alone_ms(self, work: Work) -> float:
        """The shortest time of work that is repeated, so that its bytes are where they fit in."""
        return max(self._compute_ms(work), _transfer_ms(work.nbytes, self.gb_per_s(work.nbytes)))

    def with_exponentials_ms(self, work: Work) -> float:
        """The same as ``alone_ms`` where the multiplications of exponentials take their time too."""
        flops = work.exponentials * _EXPONENTIAL_FLOPS.get(self.isa, _EXPONENTIAL_FLOPS_ELSEWHERE)
        return max(self._compute_ms(work) + flops / self.peak_gflops / 1e6, self.alone_ms(work))

    def in_query_ms(self, work: Work) -> float:
        """The same within a query: the weights come from memory, all others where they fit in."""
        other = work.nbytes - work.weight_bytes
        transfer = _transfer_ms(work.weight_bytes, self.memory_gb_per_s)
        return max(self._compute_ms(work), transfer + _transfer_ms(other, self.gb_per_s(other)))

    def _compute_ms(self, work: Work) -> float:
        return work.executed / self.peak_gflops / 1e6


def _transfer_ms(nbytes: float, gb_per_s: float) -> float:
    return nbytes / gb_per_s / 1e6


def measure_roofline(isa: str, threads: int) -> Roofline:
    """The ceilings of ``threads`` threads here. ``isa`` is one of the engine's available ones."""
    from vla_simd_ros import _engine

    engine = _engine.Engine(threads=threads, isa=isa)
    peaks = {name: threads * float(_engine.fma_peak(name, _PEAK_S)) for name in _engine.available_isas()}
    bandwidth = {size: float(engine.read_bandwidth(size, _READS)) / 1e9 for size in _SIZES}
    return Roofline(isa, threads, peaks, bandwidth)


def peak_now(isa: str, threads: int) -> float:
    """GFLOP/s of multiply-adds at the clock of the moment, in a few milliseconds."""
    from vla_simd_ros import _engine

    return threads * float(_engine.fma_peak(isa, _PEAK_NOW_S))


def roofline_table(roofline: Roofline) -> list[str]:
    """Markdown: what was measured."""
    who = "One core" if roofline.threads == 1 else f"{roofline.threads} threads"
    rows = [(f"FMA peak, {isa}", f"{rate:.1f} GFLOP/s") for isa, rate in roofline.peaks.items()]
    rows += [
        (f"read bandwidth from {_size(size)}", f"{rate:.1f} GB/s")
        for size, rate in roofline.bandwidth.items()
    ]
    return markdown_table((who, "Measured"), rows)


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"
