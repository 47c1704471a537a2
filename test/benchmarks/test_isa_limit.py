from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.isa_limit import limiting_variables


def test_avx2_is_asked_of_each_library_in_its_own_words() -> None:
    variables = limiting_variables("avx2")
    assert variables["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert variables["ATEN_CPU_CAPABILITY"] == "avx2"


@pytest.mark.parametrize("isa", ["", "portable", "neon", "avx512"])
def test_what_no_runtime_can_be_held_to_is_refused(isa: str) -> None:
    with pytest.raises(BenchmarkError, match=f"cannot be held to '{isa}', expected --isa avx2"):
        limiting_variables(isa)
