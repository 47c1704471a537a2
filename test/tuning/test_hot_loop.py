from __future__ import annotations

import pytest

from vla_simd_ros.tuning.hot_loop import Loop, hot_loop

FUNCTION = "::tile<2, 1>("


def listing(*body: str) -> str:
    """A function whose loop holds ``body``, as objdump prints it."""
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


def test_counts_of_a_clean_loop() -> None:
    assert hot_loop(listing(*CLEAN), FUNCTION) == Loop(fmas=2, loads=3, stores=0, stack=0)


def test_a_spilled_accumulator_is_counted() -> None:
    body = ("vmovaps 0x40(%rsp),%ymm1", *CLEAN, "vmovaps %ymm1,0x40(%rsp)")
    assert hot_loop(listing(*body), FUNCTION) == Loop(fmas=2, loads=4, stores=1, stack=2)


def test_an_operand_in_memory_is_a_load() -> None:
    body = [line.replace("%ymm2,%ymm3,%ymm1", "-0x50(%rbp),%ymm3,%ymm1") for line in CLEAN]
    assert hot_loop(listing(*body), FUNCTION) == Loop(fmas=2, loads=4, stores=0, stack=0)


def test_aarch64() -> None:
    text = "\n".join(
        [
            "0000000000000000 <vla::neon::tile<2, 1>(args)>:",
            "   0:\tldp\tq0, q1, [x1], #32",
            "   4:\tfmla\tv2.4s, v0.4s, v4.s[0]",
            "   8:\tstr\tq2, [sp, #16]",
            "   c:\tcmp\tx0, x1",
            "  10:\tb.ne\t0 <vla::neon::tile<2, 1>(args)>  // b.any",
        ]
    )
    assert hot_loop(text, FUNCTION) == Loop(fmas=1, loads=1, stores=1, stack=1)


def test_a_missing_function_or_loop_is_an_error() -> None:
    with pytest.raises(ValueError, match="no function 'tile<9>'"):
        hot_loop(listing(*CLEAN), "tile<9>")
    with pytest.raises(ValueError, match="no loop"):
        hot_loop("0000 <f>:\n  10:\tret", "f")
