"""Descriptions of processors, as the selection of a register tile wants them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from vla_simd_ros.tuning.plain_json import parse_json


class TargetError(ValueError):
    """A description of a target that is unknown or makes no sense."""


OPERAND_MODES = ("broadcast", "lanes")
_MOST = {"fmas_per_cycle": 16, "loads_per_cycle": 16, "fma_latency": 100}
"""Beyond what any processor does."""


class InstructionSet(NamedTuple):
    """The processor that it belongs to, as ``platform.machine()`` calls it, the fp32 values in one of its
    vector registers, how many of these it has, and the operand modes of its multiply-adds."""

    architecture: str
    lanes: int
    registers: int
    operand_modes: tuple[str, ...]


INSTRUCTION_SETS = {
    "avx2": InstructionSet("x86_64", 8, 16, ("broadcast",)),
    "avx512": InstructionSet("x86_64", 16, 32, ("broadcast",)),
    "neon": InstructionSet("aarch64", 4, 32, OPERAND_MODES),
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
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise TargetError(f"target's name is {self.name!r}, expected printable text")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (type(value) is not int or value < 1):
                raise self._refused(field.name, "1 or more")
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise self._refused(name, f"at most {most}")
        if self.operand_mode not in OPERAND_MODES:
            raise self._refused("operand_mode", " or ".join(OPERAND_MODES))
        if not isinstance(self.isa, str) or self.isa not in INSTRUCTION_SETS:
            raise self._refused("isa", f"one of {', '.join(INSTRUCTION_SETS)}")
        known = INSTRUCTION_SETS[self.isa]
        if self.lanes != known.lanes:
            raise self._refused("lanes", f"{known.lanes} for {self.isa}")
        if self.registers > known.registers:
            raise self._refused("registers", f"at most {known.registers} for {self.isa}")
        if self.operand_mode not in known.operand_modes:
            raise self._refused("operand_mode", f"{' or '.join(known.operand_modes)} for {self.isa}")

    def _refused(self, name: str, expected: str) -> TargetError:
        value = getattr(self, name)
        return TargetError(f"target '{self.name}': {name} is {value!r}, expected {expected}")

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
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
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
    try:
        return Target(**content)
    except TargetError as error:
        raise TargetError(f"{path}: {error}") from None
