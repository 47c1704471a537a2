"""Parameters of nodes as data: what each may be, in words and as a check. Free of ROS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_S = 1e6
"""Most seconds that a parameter may say: eleven days, as good as never."""


class ParameterError(Exception):
    """One or more parameters have values that cannot be used; the text names each."""


@dataclass(frozen=True)
class Param:
    """A parameter of a node.

    ``default`` gives the type: bool, int, float, str, or a list of one of them (never empty). A number, or
    each number of a list, lies between ``minimum`` and ``maximum``, the minimum itself being excluded
    where ``positive`` is set. A string is one of ``choices`` if there are any. One that is ``live`` can be
    changed while the node is configured.
    """

    name: str
    default: Any
    description: str
    minimum: float | None = None
    maximum: float | None = None
    positive: bool = False
    choices: Sequence[str] = ()
    live: bool = False

    @property
    def expectation(self) -> str:
        """What a value must be, in words; empty when the type says it all."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.positive:
            return "above 0" + (f" and at most {self.maximum}" if self.maximum is not None else "")
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"at least {self.minimum}"
        return "a number" if isinstance(_first(self.default), float) else ""

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, or None."""
        items = list(value) if isinstance(self.default, list) and _is_list(value) else [value]
        kind = type(_first(self.default))
        right_type = _is_list(value) == isinstance(self.default, list) and all(
            _is_a(item, kind) for item in items
        )
        if not right_type or not items:
            many = "a list of " if isinstance(self.default, list) else ""
            return f"{self.name}: got {value!r}, expected {many}{kind.__name__}"
        for item in items:
            if not self._fits(item):
                return f"{self.name}: got {item!r}, expected {self.expectation}"
        return None

    def _fits(self, item: Any) -> bool:
        if isinstance(item, str):
            return not self.choices or item in self.choices
        if item != item or (self.positive and not item > 0):
            return False
        above = self.minimum is None or item >= self.minimum
        return above and (self.maximum is None or item <= self.maximum)


def _first(default: Any) -> Any:
    return default[0] if isinstance(default, list) else default


def _is_list(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and isinstance(value, Sequence)


def _is_a(item: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(item, (int, float)) and not isinstance(item, bool)
    if kind is int:
        return isinstance(item, int) and not isinstance(item, bool)
    return isinstance(item, kind)


def checked(specs: Sequence[Param], given: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each parameter, the default where none is given; numbers of float parameters as float.

    Raises:
        ParameterError: names every value that does not fit and what was expected.
    """
    values = {spec.name: given.get(spec.name, spec.default) for spec in specs}
    problems = [spec.problem(values[spec.name]) for spec in specs]
    if any(problems):
        raise ParameterError("; ".join(problem for problem in problems if problem))
    return {spec.name: as_declared(spec, values[spec.name]) for spec in specs}


def as_declared(spec: Param, value: Any) -> Any:
    """A value that fits; numbers of a float parameter as float."""
    if not isinstance(_first(spec.default), float):
        return list(value) if isinstance(spec.default, list) else value
    return [float(item) for item in value] if isinstance(spec.default, list) else float(value)


def per_joint(values: Mapping[str, Any], name: str, joints: Sequence[str]) -> list[Any]:
    """A list parameter with one value per joint; a single value stands for all.

    Raises:
        ParameterError: another number of values.
    """
    given = list(values[name])
    if len(given) == 1:
        return given * len(joints)
    if len(given) != len(joints):
        raise ParameterError(
            f"{name}: got {len(given)} values, expected one for all or one for each of {list(joints)}"
        )
    return given
