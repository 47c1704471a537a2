#!/usr/bin/env python3
"""Copies of OpenVINO and ONNX Runtime that find a processor without AVX-512 and VNNI, to compare with them.

    python scripts/hold_peers.py FOLDER
    PYTHONPATH=FOLDER LD_PRELOAD=FOLDER/cpuid_avx2.so vla_simd bench CHECKPOINT --isa avx2 --peers openvino

Neither has a setting that holds all of it: the convolutions of OpenVINO obey ONEDNN_MAX_CPU_ISA, its matrix
products and all of ONNX Runtime do not. In the copies every CPUID instruction is an undefined one of the same
length instead, and a preloaded handler answers those. Needs objdump, readelf and a C compiler, and Linux on
x86-64; the installed packages stay as they are.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("openvino", "onnxruntime")
HANDLER = Path(__file__).with_name("cpuid_avx2.c")
_CPUID, _UNDEFINED = b"\x0f\xa2", b"\x0f\x0b"


def build_handler(folder: Path) -> Path:
    """The library to preload."""
    library = folder / HANDLER.with_suffix(".so").name
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, HANDLER], check=True)
    return library


def replace_cpuid(library: Path) -> int:
    """Replace the CPUID instructions of a library or program; how many there were."""
    data = bytearray(library.read_bytes())
    offsets = list(_cpuid_offsets(library))
    for offset in offsets:
        if data[offset : offset + 2] != _CPUID:
            raise SystemExit(f"{library}: no CPUID instruction at byte {offset}, where objdump shows one")
        data[offset : offset + 2] = _UNDEFINED
    library.write_bytes(data)
    return len(offsets)


def _cpuid_offsets(library: Path) -> Iterator[int]:
    """Where they are in the file, from their addresses and those of the sections."""
    sections = [
        (int(address, 16), int(offset, 16), int(size, 16))
        for address, offset, size in re.findall(
            r"PROGBITS\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)", _output("readelf", "-SW", library)
        )
    ]
    listing = _output("objdump", "-d", "--no-show-raw-insn", library)
    for found in re.finditer(r"^\s*([0-9a-f]+):\s+cpuid", listing, re.MULTILINE):
        at = int(found.group(1), 16)
        yield next(at - address + offset for address, offset, size in sections if 0 <= at - address < size)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _copy(package: str, folder: Path) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed; scripts/requirements-bench.txt has it")
    target = folder / package
    shutil.copytree(Path(spec.origin).parent, target, dirs_exist_ok=True)
    return target


def main() -> None:
    """See the module."""
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} FOLDER")
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        for library in sorted(_copy(package, folder).rglob("*.so*")):
            if count := replace_cpuid(library):
                print(f"{library.relative_to(folder)}: {count} CPUID instructions replaced", flush=True)
    print(f"PYTHONPATH={folder} LD_PRELOAD={build_handler(folder)}")


if __name__ == "__main__":
    main()
