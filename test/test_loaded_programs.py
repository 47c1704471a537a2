"""Programs for instructions of several lengths and passes of several sizes."""

from __future__ import annotations

from spelling_policy import SpellingPolicy

from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.loaded_programs import LoadedPrograms


def test_the_lengths_used_last_are_kept() -> None:
    programs = LoadedPrograms(SpellingPolicy(), SimdExecutor(threads=1), "")
    made = {tokens: programs.executable(tokens) for tokens in (1, 2, 3, 4)}
    assert programs.executable(1) is made[1]
    programs.executable(5)
    assert programs.executable(1) is made[1] and programs.executable(2) is not made[2]


def test_passes_share_weights_and_work_beside_the_others() -> None:
    executor = SimdExecutor(threads=1)
    programs = LoadedPrograms(SpellingPolicy(), executor, "")
    whole = programs.executable(3)
    large = programs.passes(4)
    packed = executor.weight_bytes
    small = programs.passes(2)
    assert programs.passes(4) is large and executor.weight_bytes == packed
    assert small.memory is large.memory is not whole.memory  # type: ignore[attr-defined]
