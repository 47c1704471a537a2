"""Compiling single kernel sources as the engine's build does, for this processor or another."""

from __future__ import annotations

import json
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vla_simd_ros.tuning.target import Target

SOURCES = Path(__file__).resolve().parents[2] / "cpp_kernels"
"""The engine's sources, beside this package in a checkout; an installed package has none."""

_CROSS_COMPILERS = {"aarch64": "aarch64-linux-gnu-g++", "x86_64": "x86_64-linux-gnu-g++"}


class BuildError(Exception):
    """A kernel cannot be compiled; the message says what is missing or what the compiler said."""


def cross_compiler(architecture: str) -> str | None:
    """The compiler for another processor; None for this one, which the build finds one for by itself.

    Raises BuildError where none is installed.
    """
    if architecture == platform.machine():
        return None
    name = _CROSS_COMPILERS[architecture]
    if shutil.which(name) is None:
        raise BuildError(
            f"no compiler for {architecture} is installed, expected {name}"
            f" (package g++-{architecture.replace('_', '-')}-linux-gnu)"
        )
    return name


class KernelBuild:
    """Compiles sources of the engine for a target into ``folder``, with the build's own compiler and flags.

    Raises BuildError where sources or tools are missing.
    """

    def __init__(self, target: Target, folder: Path, sources: Path = SOURCES) -> None:
        if not (sources / "kernels" / "tile.cpp").is_file():
            raise BuildError(f"{sources} does not hold the engine's sources; run this in a checkout")
        self._sources = sources
        self._folder = folder
        self._architecture = target.architecture
        self._configure()
        self._command, self._directory = self._command_for("tile.cpp", target.isa)
        self._objdump = _objdump(folder / "CMakeCache.txt")

    def compile(self, source: str, output: str, defines: Sequence[str] = ()) -> Path:
        """The object file of ``source``, a path below the sources, with macros defined (``NAME=VALUE``)."""
        compiled = self._folder / output
        command = [*self._command, *(f"-D{define}" for define in defines)]
        _run([*command, "-o", str(compiled), "-c", str(self._sources / source)], self._directory)
        return compiled

    def compile_int8(self, variant: str) -> Path:
        """The object file of the register tile of a variant of the INT8 kernels."""
        source = "int8_tile.cpp"
        command, directory = self._command_for(source, f"int8_{variant}")
        compiled = self._folder / f"int8_tile_{variant}.o"
        _run([*command, "-o", str(compiled), "-c", str(self._sources / "kernels" / source)], directory)
        return compiled

    def link(self, objects: Sequence[Path], output: str) -> Path:
        """The executable of these objects."""
        program = self._folder / output
        _run([self._command[0], *map(str, objects), "-o", str(program)], self._folder)
        return program

    def disassemble(self, compiled: Path) -> str:
        """The instructions of an object file, with C++ names."""
        command = [self._objdump, "-d", "-C", "--no-show-raw-insn", str(compiled)]
        return _run(command, self._folder)

    def _configure(self) -> None:
        if shutil.which("cmake") is None:
            raise BuildError("cmake is not installed, expected it for compiling kernels")
        options = [
            "-DVLA_BUILD_PYTHON=OFF",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        ]
        if compiler := cross_compiler(self._architecture):
            options += [
                "-DCMAKE_SYSTEM_NAME=Linux",
                f"-DCMAKE_SYSTEM_PROCESSOR={self._architecture}",
                f"-DCMAKE_CXX_COMPILER={compiler}",
            ]
        _run(["cmake", "-S", str(self._sources), "-B", str(self._folder), *options], self._folder)

    def _command_for(self, source: str, isa: str) -> tuple[list[str], Path]:
        """The build's command for a kernel source and instruction set, without input and output."""
        for entry in json.loads((self._folder / "compile_commands.json").read_text()):
            arguments = shlex.split(entry["command"])
            if entry["file"].endswith(f"/kernels/{source}") and f"-DVLA_ISA={isa}" in arguments:
                for option in ("-o", "-c"):
                    at = arguments.index(option)
                    del arguments[at : at + 2]
                return arguments, Path(entry["directory"])
        raise BuildError(f"the build has no {source} for {isa}")


def _objdump(cache: Path) -> str:
    """The disassembler that belongs to the compiler."""
    found = re.search(r"^CMAKE_OBJDUMP:\w+=(/.+)$", cache.read_text(), re.MULTILINE)
    if not found:
        raise BuildError("no objdump for the compiler is installed (package binutils)")
    return found[1]


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{command[0]} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
