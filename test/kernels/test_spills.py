from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load_script() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts" / "check_spills.py"
    spec = importlib.util.spec_from_file_location("check_spills", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_spills"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check_spills = _load_script()

AVX2 = check_spills.Tile("avx2", rows=2, vectors=1)


def _listing(*body: str) -> str:
    """A function whose loop holds `body`, as objdump prints it."""
    lines = ["0000000000000010 <void vla::avx2::tile<2, 1>(int)>:", "  10:\tvxorps %xmm0,%xmm0,%xmm0"]
    lines += [f"  {0x20 + 4 * i:x}:\t{text}" for i, text in enumerate(body)]
    lines.append(f"  {0x20 + 4 * len(body):x}:\tjg     20 <void vla::avx2::tile<2, 1>(int)+0x10>")
    return "\n".join([*lines, "  90:\tvmovups %ymm1,(%rax)", "  94:\tret"])


CLEAN = (
    "vmovups (%rcx),%ymm2",
    "vbroadcastss (%rdx),%ymm3",
    "vfmadd231ps %ymm2,%ymm3,%ymm0",
    "vbroadcastss (%rdx,%rax,4),%ymm3",
    "vfmadd231ps %ymm2,%ymm3,%ymm1",
    "add    $0x20,%rcx",
    "mov    0x8(%rsp),%rbx",  # a scalar from the stack is no spill of an accumulator
)


def _faults(*body: str) -> list[str]:
    loop = check_spills.hot_loop(_listing(*body), check_spills.tile_function(AVX2, 1))
    faults: list[str] = loop.faults(AVX2)
    return faults


def test_a_clean_loop_passes() -> None:
    assert _faults(*CLEAN) == []


def test_a_spilled_accumulator_is_found() -> None:
    faults = _faults("vmovaps 0x40(%rsp),%ymm1", *CLEAN, "vmovaps %ymm1,0x40(%rsp)")
    assert any("1 vector stores" in fault for fault in faults)
    assert any("2 vector accesses to the stack" in fault for fault in faults)
    assert any("4 vector loads, expected 3" in fault for fault in faults)


def test_an_operand_reloaded_through_another_register_is_found() -> None:
    body = [line.replace("%ymm2,%ymm3,%ymm1", "-0x50(%rbp),%ymm3,%ymm1") for line in CLEAN]
    assert _faults(*body) == ["4 vector loads, expected 3"]


def test_a_missing_multiply_add_is_found() -> None:
    assert _faults(*CLEAN[:4]) != []


def test_a_missing_function_or_loop_is_an_error() -> None:
    with pytest.raises(ValueError, match="no function 'tile<9>'"):
        check_spills.hot_loop(_listing(*CLEAN), "tile<9>")
    with pytest.raises(ValueError, match="no loop"):
        check_spills.hot_loop("0000 <f>:\n  10:\tret", "f")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump (package binutils)")
def test_the_compiled_tiles_do_not_spill(tmp_path: Path) -> None:
    tiles = check_spills.TILES[platform.machine()]
    for tile in tiles:
        disassembly = check_spills.disassemble_tile(tile.isa, tmp_path)
        for lines in check_spills.FETCHED_LINES:
            loop = check_spills.hot_loop(disassembly, check_spills.tile_function(tile, lines))
            assert loop.faults(tile) == [], (tile, lines)
