"""Programs that ask the processor what it can do, before and after their CPUID instructions are replaced."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("cc", "objdump", "readelf")

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not all(map(shutil.which, TOOLS)),
    reason=f"x86-64 with {', '.join(TOOLS)} only",
)

PROGRAM = """
#include <cpuid.h>
#include <stdio.h>
int main(void) {
  unsigned a, b, c, d;
  for (unsigned leaf = 0; leaf < 8; leaf += 7) {
    for (unsigned subleaf = 0; subleaf < 2; ++subleaf) {
      __cpuid_count(leaf, subleaf, a, b, c, d);
      printf("%u %u %u %u ", a, b, c, d);
    }
  }
  return 0;
}
"""
# Of leaf 7: the bits of AVX-512 F, CD, BW and VL in ebx, of VNNI in ecx, and of AVX-VNNI in eax of subleaf 1.
HIDDEN = {
    9: 1 << 16 | 1 << 28 | 1 << 30 | 1 << 31,
    10: 1 << 11,
    12: 1 << 4,
}
AVX2, FEATURES = 1 << 5, 9


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hold_peers", ROOT / "scripts" / "hold_peers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def features(program: Path, **environment: str) -> list[int]:
    ran = subprocess.run(
        [program], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return [int(word) for word in ran.stdout.split()]


def compiled(folder: Path, source: str) -> Path:
    (folder / "program.c").write_text(source)
    subprocess.run(["cc", "-O1", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def test_a_program_finds_avx2_and_nothing_beyond(script: ModuleType, tmp_path: Path) -> None:
    program, handler = compiled(tmp_path, PROGRAM), script.build_handler(tmp_path)
    before = features(program)
    assert script.replace_cpuid(program) > 0
    after = features(program, LD_PRELOAD=str(handler))
    assert after[:8] == before[:8]  # the vendor, of either subleaf
    assert all(after[at] & bits == 0 for at, bits in HIDDEN.items())
    assert after[FEATURES] & AVX2 == before[FEATURES] & AVX2
    assert all(new & ~old == 0 for new, old in zip(after, before, strict=True))


def test_other_undefined_instructions_still_end_a_program(script: ModuleType, tmp_path: Path) -> None:
    program = compiled(tmp_path, 'int main(void) { __asm__("ud1 %eax, %eax"); return 0; }')
    with pytest.raises(subprocess.CalledProcessError, match="SIGILL"):
        features(program, LD_PRELOAD=str(script.build_handler(tmp_path)))


def test_a_library_without_them_is_left_as_it_is(script: ModuleType, tmp_path: Path) -> None:
    program = compiled(tmp_path, "int main(void) { return 0; }")
    before = program.read_bytes()
    assert script.replace_cpuid(program) == 0
    assert program.read_bytes() == before
