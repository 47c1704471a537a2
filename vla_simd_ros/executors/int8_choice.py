"""Which groups of layers are computed in int8."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from vla_simd_ros.graph.int8_groups import Int8GroupError, group_names, int8_groups, resolve_groups
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.graph.passes.quantize import mark_int8
from vla_simd_ros.graph.passes.rewriting import attrs_key

AUTO = "auto"
# Less precision must pay: it has to save this much of the time.
_LEAST_GAIN = 0.05

_LOGGER = logging.getLogger(__name__)


@runtime_checkable
class TimesOperations(Protocol):
    """An executor that can tell how long it takes for an operation."""

    def time_ms(self, op: Op) -> float:
        """The shortest time of an operation on its own."""


def choose_int8(setting: str | Sequence[str], ops: Iterable[Op], executor: object) -> tuple[str, ...]:
    """The groups of ``ops`` that ``setting`` stands for: names, "all", or "auto" for those that ``executor``
    computes faster in int8. Raises Int8GroupError for an unknown group, and for "auto" where nothing can be
    timed or names stand beside it.
    """
    names = group_names(setting)
    groups = int8_groups(ops)
    if AUTO not in names:
        return resolve_groups(names, groups)
    if len(names) > 1:
        raise Int8GroupError(f"int8 is '{','.join(names)}', expected '{AUTO}' alone or names of groups")
    if not isinstance(executor, TimesOperations):
        raise Int8GroupError(f"int8 is '{AUTO}', expected names of groups: this executor times nothing")
    return Int8Choice(executor.time_ms).faster(groups)


class Int8Choice:
    """Compares layers in int8 with the same layers in fp32; each shape is timed once."""

    def __init__(self, time_ms: Callable[[Op], float]) -> None:
        self._time_ms = time_ms
        self._times: dict[object, tuple[float, float]] = {}

    def faster(self, groups: Mapping[str, Sequence[Op]]) -> tuple[str, ...]:
        """The groups that are faster in int8 by enough to give precision for it."""
        return tuple(name for name, ops in groups.items() if self._is_faster(name, ops))

    def _is_faster(self, name: str, ops: Sequence[Op]) -> bool:
        times = [self._both(op) for op in ops]
        single, int8 = sum(pair[0] for pair in times), sum(pair[1] for pair in times)
        faster = int8 < single * (1 - _LEAST_GAIN)
        chosen = "int8" if faster else "fp32"
        _LOGGER.info("int8 auto, %s: %s of fp32 %.3f ms, int8 %.3f ms", name, chosen, single, int8)
        return faster

    def _both(self, op: Op) -> tuple[float, float]:
        shapes = tuple(None if t is None else (t.shape, t.lifetime) for t in op.inputs)
        key = (op.kind, attrs_key(op.attrs), shapes)
        if key not in self._times:
            (marked,) = mark_int8([op], {op.output})
            self._times[key] = (self._time_ms(op), self._time_ms(marked))
        return self._times[key]
