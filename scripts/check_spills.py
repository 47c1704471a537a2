"""Compiles the register tile as the build does and looks for spills in its inner loop.

    python scripts/check_spills.py

A tile keeps its accumulators in vector registers. A compiler that runs out of them moves some to the stack
inside the loop, which costs up to two thirds of the speed and changes no result. So the loop is disassembled:
it may load the panel and the broadcast values, and store nothing.
"""

from __future__ import annotations

import itertools
import json
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "cpp_kernels"


@dataclass(frozen=True)
class Tile:
    """A register tile of one instruction set: `rows` rows of `vectors` vector registers."""

    isa: str
    rows: int
    vectors: int

    @property
    def fmas_per_step(self) -> int:
        return self.rows * self.vectors

    @property
    def loads_per_step(self) -> int:
        """Vector loads that one step in depth needs: the panel's vectors and one broadcast per row."""
        return self.rows + self.vectors


TILES = {
    "x86_64": (Tile("avx2", 6, 2), Tile("avx512", 13, 2)),
    "aarch64": (Tile("neon", 4, 4),),
}

FETCHED_LINES = (1, 4)
"""Each tile is compiled for fetching this many lines ahead in four steps."""


@dataclass(frozen=True)
class Loop:
    """What an innermost loop does to vector registers, and to memory with them."""

    fmas: int
    loads: int
    stores: int
    stack: int

    def faults(self, tile: Tile) -> list[str]:
        """What is wrong with this as the hot loop of a tile; empty when it is free of spills."""
        found = []
        if self.fmas == 0 or self.fmas % tile.fmas_per_step:
            found.append(f"{self.fmas} multiply-adds, expected a multiple of {tile.fmas_per_step}")
        if self.stores:
            found.append(f"{self.stores} vector stores, expected none")
        if self.stack:
            found.append(f"{self.stack} vector accesses to the stack, expected none")
        needed = self.fmas // tile.fmas_per_step * tile.loads_per_step
        if self.loads > needed:
            found.append(f"{self.loads} vector loads, expected {needed}")
        return found


_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_X86_JUMP = re.compile(r"^j[a-z]+$")
_ARM_JUMP = re.compile(r"^(b|b\.[a-z]+|cbn?z|tbn?z)$")
_FMA = re.compile(r"^(vfmadd\d+ps|fmla)$")
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


def disassemble_tile(isa: str, folder: Path) -> str:
    """Compiles the tile for one instruction set, with the build's own flags, and disassembles it."""
    if not (folder / "compile_commands.json").exists():
        options = [
            "-DVLA_BUILD_PYTHON=OFF",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        ]
        _run(["cmake", "-S", str(SOURCE), "-B", str(folder), *options], folder)
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        if entry["file"].endswith("/tile.cpp") and f"VLA_ISA={isa}" in " ".join(arguments):
            compiled = folder / f"tile_{isa}.o"
            arguments[arguments.index("-o") + 1] = str(compiled)
            _run(arguments, Path(entry["directory"]))
            return _run(["objdump", "-d", "-C", "--no-show-raw-insn", str(compiled)], folder)
    raise ValueError(f"the build has no tile for {isa}")


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def tile_function(tile: Tile, lines: int) -> str:
    """The symbol of the tile's largest row count, fetching this many lines ahead."""
    return f"::tile<{tile.rows}, {lines}>("


def main() -> int:
    """Prints a line per tile of this machine; 1 where one spills."""
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        for tile, lines in itertools.product(TILES.get(platform.machine(), ()), FETCHED_LINES):
            loop = hot_loop(disassemble_tile(tile.isa, Path(folder)), tile_function(tile, lines))
            faults = loop.faults(tile)
            shape = f"{tile.isa} {tile.rows} rows of {tile.vectors} vectors, fetching {lines}"
            print(
                f"{shape}: {loop.fmas} multiply-adds, {loop.loads} loads, {loop.stores} stores: "
                f"{'; '.join(faults) or 'no spills'}"
            )
            status |= bool(faults)
    return status


if __name__ == "__main__":
    sys.exit(main())
