"""Groups of layers that can be computed in int8, named by block and operator as a user would name them.

The first part of the block's name, then what the layer does there: "backbone.conv", "encoder.attention" (the
projections around attention), "encoder.ffn" (the other linear layers of blocks with attention). Blocks of
nothing but linear layers are one group: "head".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from vla_simd_ros.graph.int8 import INT8
from vla_simd_ros.graph.ir import Lifetime, Op, Tensor

ALL = "all"
LEAST_DEPTH = 32
"""Products over fewer terms stay in fp32: there is nothing to save, and a robot's state is such a row."""

_CONV, _ATTENTION, _FFN, _LINEAR = "conv", "attention", "ffn", "linear"
# Between an attention and its projections lie views, positions, norms of queries and keys; never these.
_ATTENTIONS = ("attention", "cached_attention")
_PRODUCTS = ("linear", "conv2d", *_ATTENTIONS)
_NORMS = ("layer_norm", "rms_norm", "group_norm")


class Int8GroupError(ValueError):
    """A group that the policy does not have."""


def int8_groups(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """The operations that can be computed in int8, by group, in the order of the operations.

    These are layers with constant weights that run with every query or step. What runs once per instruction,
    the text encoder above all, stays in fp32.
    """
    ops = list(ops)
    projections = _projections(ops)
    roles = {op: _role(op, projections) for op in ops if _supported(op)}
    with_attention = {_family(op) for op, role in roles.items() if role == _ATTENTION}
    named: dict[Op, tuple[str, str]] = {}
    for op, role in roles.items():
        inside = role == _LINEAR and _family(op) in with_attention
        named[op] = (_family(op), _FFN if inside else role)
    kinds: dict[str, set[str]] = {}
    for family, role in named.values():
        kinds.setdefault(family, set()).add(role)
    groups: dict[str, list[Op]] = {}
    for op, (family, role) in named.items():
        name = family if family and kinds[family] == {_LINEAR} else f"{family}.{role}".lstrip(".")
        groups.setdefault(name, []).append(op)
    return groups


def group_names(setting: str | Sequence[str]) -> tuple[str, ...]:
    """The names in a setting: a sequence, or a text with commas."""
    parts = setting.split(",") if isinstance(setting, str) else setting
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def int8_setting(precision: str, names: str) -> str:
    """The groups in int8, where both a precision of everything and names of groups can be given. Raises
    :class:`Int8GroupError` for the precision int8 beside groups that are not all."""
    if precision != INT8:
        return names
    if names not in ("", ALL):
        raise Int8GroupError(f"precision is {INT8} and int8 is '{names}', expected one of the two")
    return ALL


def resolve_groups(names: Collection[str], groups: Mapping[str, object]) -> tuple[str, ...]:
    """Those of ``groups`` that ``names`` stand for: a group's name, the part before its dot for all groups
    of that part of the network, or "all". Raises :class:`Int8GroupError`, listing the groups."""
    for name in names:
        if name != ALL and not any(_stands_for(name, group) for group in groups):
            known = ", ".join([*groups, ALL])
            raise Int8GroupError(f"int8 group '{name}' is unknown, this policy has: {known}")
    return tuple(group for group in groups if any(_stands_for(name, group) for name in names))


def _stands_for(name: str, group: str) -> bool:
    return name in (ALL, group) or group.startswith(f"{name}.")


def _supported(op: Op) -> bool:
    if op.kind not in ("linear", "conv2d") or op.output.lifetime <= Lifetime.EPISODE:
        return False
    weight = op.inputs[1]
    assert weight is not None
    return weight.lifetime is Lifetime.PROCESS and math.prod(weight.shape[1:]) >= LEAST_DEPTH


def _family(op: Op) -> str:
    return op.block.partition(".")[0]


def _role(op: Op, projections: Collection[Op]) -> str:
    if op.kind == "conv2d":
        return _CONV
    return _ATTENTION if op in projections else _LINEAR


def _projections(ops: Sequence[Op]) -> set[Op]:
    """The linear layers that queries, keys and values come from, and those that attention goes to."""
    producers = {op.output: op for op in ops}
    readers: dict[Tensor, list[Op]] = {}
    for op in ops:
        for tensor in op.operands():
            readers.setdefault(tensor, []).append(op)
    found: set[Op] = set()
    for op in ops:
        if op.kind in _ATTENTIONS:
            before = _reachable(op, lambda o: [producers[t] for t in o.operands() if t in producers], ())
            after = _reachable(op, lambda o: readers.get(o.output, []), _NORMS)
            found.update(layer for layer in (*before, *after) if layer.kind == "linear")
    return found


def _reachable(start: Op, neighbours: Callable[[Op], list[Op]], ends: Collection[str]) -> list[Op]:
    """The products nearest to ``start`` within its block; the way goes through no operation of ``ends``."""
    products: list[Op] = []
    seen, pending = {start}, [start]
    while pending:
        for op in neighbours(pending.pop()):
            if op in seen or op.block != start.block or op.kind in ends:
                continue
            seen.add(op)
            (products if op.kind in _PRODUCTS else pending).append(op)
    return products
