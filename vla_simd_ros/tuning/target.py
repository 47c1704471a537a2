"""Descriptions of processors, as the selection of a register tile wants them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple


class TargetError(ValueError):
    """A description of a target that is unknown or makes no sense."""


OPERAND_MODES = ("broadcast", "lanes")


class InstructionSet(NamedTuple):
    """The processor that it belongs to, as ``platform.machine()`` calls it, the fp32 values in one of its
    vector registers, and how many of these it has."""

    architecture: str
    lanes: int
    registers: int


INSTRUCTION_SETS = {
    "avx2": InstructionSet("x86_64", 8, 16),
    "avx512": InstructionSet("x86_64", 16, 32),
    "neon": InstructionSet("aarch64", 4, 32),
}
"""What a kernel source can be compiled for."""


@dataclass(frozen=True)
class Target:
    """A processor, to a register tile.

    ``lanes`` is the number of fp32 values in a vector register (L), ``registers`` that of vector registers
    (R_max); ``fmas_per_cycle`` and ``loads_per_cycle`` count vectors (P_fma, P_ld), ``fma_latency`` cycles
    (tau). ``operand_mode`` says how a value of the left operand reaches the multiply-add: "broadcast" into a
    register of its own, or one of the "lanes" of a register that holds ``lanes`` successive values of a row.
    """

    name: str
    isa: str
    lanes: int
    registers: int
    fmas_per_cycle: int
    loads_per_cycle: int
    fma_latency: int
    operand_mode: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (type(value) is not int or value < 1):
                raise TargetError(f"target '{self.name}': {field.name} is {value!r}, expected 1 or more")
        if self.operand_mode not in OPERAND_MODES:
            expected = " or ".join(OPERAND_MODES)
            raise TargetError(
                f"target '{self.name}': operand_mode is {self.operand_mode!r}, expected {expected}"
            )
        if not isinstance(self.isa, str) or self.isa not in INSTRUCTION_SETS:
            expected = ", ".join(INSTRUCTION_SETS)
            raise TargetError(f"target '{self.name}': isa is {self.isa!r}, expected one of {expected}")
        _, lanes, registers = INSTRUCTION_SETS[self.isa]
        if self.lanes != lanes:
            raise TargetError(f"target '{self.name}': lanes is {self.lanes}, expected {lanes} for {self.isa}")
        if self.registers > registers:
            expected = f"at most {registers} for {self.isa}"
            raise TargetError(f"target '{self.name}': registers is {self.registers}, expected {expected}")

    @property
    def architecture(self) -> str:
        """The processor that the instruction set belongs to, as ``platform.machine()`` calls it."""
        return INSTRUCTION_SETS[self.isa].architecture


TARGETS = {
    target.name: target
    for target in (
        Target("avx2", "avx2", 8, 16, 2, 2, 4, "broadcast"),
        Target("avx512", "avx512", 16, 32, 2, 2, 4, "broadcast"),
        Target("neon", "neon", 4, 32, 2, 2, 4, "lanes"),
    )
}
"""Haswell to Zen 5 with 256-bit registers; server processors with two 512-bit multipliers; Cortex-A76."""


def find_target(name: str) -> Target:
    """A target by its name in :data:`TARGETS`, or from a JSON file with the fields of :class:`Target`.

    Raises TargetError for anything else.
    """
    if name in TARGETS:
        return TARGETS[name]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(TARGETS)
        raise TargetError(f"target '{name}' is unknown and no file, expected one of {known}, or a JSON file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TargetError(f"{path}: not JSON: {error}") from None
    return _from_json(path, content)


def _from_json(path: Path, content: Any) -> Target:
    names = [field.name for field in fields(Target)]
    if not isinstance(content, dict):
        raise TargetError(f"{path}: expected an object with {', '.join(names)}")
    for name in content:
        if name not in names:
            raise TargetError(f"{path}: '{name}' is unknown, expected {', '.join(names)}")
    for name in names:
        if name not in content:
            raise TargetError(f"{path}: '{name}' is missing, expected {', '.join(names)}")
    return Target(**content)
