"""What the innermost loop of a compiled function does to vector registers and memory.

A register tile keeps its sums in vector registers. A compiler that runs out of them moves some to the stack
inside the loop, which costs up to two thirds of the speed and changes no result; only the instructions tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """Counts of an innermost loop: multiply-adds, and accesses of vectors to memory, ``stack`` of them to the
    stack."""

    fmas: int
    loads: int
    stores: int
    stack: int


_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:\{vex\}\s+)?(\S+)\s*(.*)$")
_X86_JUMP = re.compile(r"^j[a-z]+$")
_ARM_JUMP = re.compile(r"^(b|b\.[a-z]+|cbn?z|tbn?z)$")
# Of fp32, or one of integers per register that is added to.
_FMA = re.compile(r"^(vfmadd\d+ps|fmla|vpdpbusd|vpmaddwd|sdot|sadalp)$")
_VECTOR = re.compile(r"%[xyz]mm\d|\b[vqs]\d+\b|\bv\d+\.")
_MEMORY = re.compile(r"\([^)]*%r[^)]*\)|\[(x|sp)")
_STACK = re.compile(r"\(%rsp|\[sp")


@dataclass(frozen=True)
class _Instruction:
    address: int
    name: str
    operands: str

    @property
    def target(self) -> int | None:
        """Where a jump goes."""
        if not (_X86_JUMP.match(self.name) or _ARM_JUMP.match(self.name)):
            return None
        found = re.search(r"\b([0-9a-f]+) <", self.operands)
        return int(found[1], 16) if found else None

    @property
    def is_vector_access(self) -> bool:
        return bool(_VECTOR.search(self.operands) and _MEMORY.search(self.operands))

    @property
    def is_store(self) -> bool:
        """AT&T order has the destination last; AArch64 names its stores."""
        return self.name.startswith("st") or self.operands.rstrip().endswith(")")


def _function(disassembly: str, name: str) -> list[_Instruction]:
    body: list[_Instruction] = []
    inside = False
    for line in disassembly.splitlines():
        header = _FUNCTION.match(line)
        if header:
            inside = name in header[1]
            continue
        found = _INSTRUCTION.match(line)
        if inside and found:
            body.append(_Instruction(int(found[1], 16), found[2], found[3]))
    if not body:
        raise ValueError(f"no function '{name}' in the disassembly")
    return body


def hot_loop(disassembly: str, function: str) -> Loop:
    """The innermost loop with the most multiply-adds of a function in objdump's output.

    Raises ValueError where the function or a loop in it is missing.
    """
    body = _function(disassembly, function)
    spans = [
        (i.target, i.address)
        for i in body
        if i.target is not None and body[0].address <= i.target <= i.address
    ]
    innermost = [
        (a, b) for a, b in spans if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)
    ]
    loops = []
    for first, last in innermost:
        inside = [i for i in body if first <= i.address <= last]
        accesses = [i for i in inside if i.is_vector_access]
        stores = sum(i.is_store for i in accesses)
        loops.append(
            Loop(
                fmas=sum(bool(_FMA.match(i.name)) for i in inside),
                loads=len(accesses) - stores,
                stores=stores,
                stack=sum(bool(_STACK.search(i.operands)) for i in accesses),
            )
        )
    if not loops:
        raise ValueError(f"no loop in function '{function}'")
    return max(loops, key=lambda loop: loop.fmas)
