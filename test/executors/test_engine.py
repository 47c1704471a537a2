"""The engine's Python module by itself: memory, checks and errors that the executor never provokes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from vla_simd_ros import _engine


def test_the_cpu_is_described() -> None:
    info = _engine.cpu_info()
    assert info["model"] and info["physical_cores"] >= 1
    assert _engine.default_threads() <= info["physical_cores"]
    assert _engine.available_isas()[-1] == "portable"


def test_arena_views_are_bounded_and_keep_it_alive() -> None:
    arena = _engine.Arena(256)
    view = arena.array(64, [2, 3], [40, 4], "float32")
    view[:] = np.arange(6).reshape(2, 3)
    assert arena.array(64, [13], [4], "float32").tolist()[10:] == [3.0, 4.0, 5.0]
    del arena
    gc.collect()
    assert view[1, 2] == 5
    arena = _engine.Arena(256)
    for offset, shape, strides, dtype in (
        (0, [65], [4], "float32"),
        (252, [2], [4], "float32"),
        (-4, [1], [4], "float32"),
        (2, [1], [4], "float32"),
        (256, [1], [1], "uint8"),
        (0, [2, 2], [4], "float32"),
        (0, [2**40, 2**40], [2**40, 4], "float32"),
        (0, [0], [4], "float32"),
        (0, [4], [-4], "float32"),
        (0, [4], [4], "float64"),
    ):
        with pytest.raises(ValueError, match=r"arena|dtype"):
            arena.array(offset, shape, strides, dtype)


def test_borrowed_arrays_live_as_long_as_the_constant() -> None:
    array = np.arange(4, dtype=np.float32)
    watch = weakref.ref(array)
    constant = _engine.Constant(array, borrow=True)
    del array
    gc.collect()
    assert watch() is not None and constant.bytes == 16


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros(3, np.int64), np.zeros((4, 4), np.float32)[:, 1:]])
def test_arrays_of_other_kinds_are_refused(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected float32, uint8 or int32|not C-contiguous"):
        _engine.Constant(array)


def test_weights_must_be_matrices() -> None:
    engine = _engine.Engine(1)
    with pytest.raises(ValueError, match=r"weights: got 3 dimensions, expected \[n, k\]"):
        engine.pack(np.zeros((2, 2, 2), np.float32))
    with pytest.raises(ValueError, match="weights: got 0x4"):
        engine.pack(np.zeros((0, 4), np.float32))


def test_program_errors_name_the_operation() -> None:
    engine, arena = _engine.Engine(1), _engine.Arena(1024)
    builder = _engine.ProgramBuilder(engine, arena)
    inside, outside = _engine.View(0, 2, 4, 4), _engine.View(1000, 2, 4, 4)
    with pytest.raises(_engine.ProgramError, match="op 'copy': output of 8 float32 at byte 1000 is outside"):
        builder.pointwise("copy", inside, outside)
    with pytest.raises(_engine.ProgramError, match="op 'act': unknown activation 'swish'"):
        builder.pointwise("act", inside, inside, activation="swish")
    with pytest.raises(_engine.ProgramError, match="op 'pow': unknown binary operation 'pow'"):
        builder.binary("pow", "pow", inside, inside, inside)
    builder.pointwise("fine", inside, inside, activation="relu")
    program = builder.build()
    assert program.labels == ["fine"]
    assert len(program.profile()) == 1


def test_a_program_is_timed_over_as_many_runs_as_asked_for() -> None:
    engine, arena = _engine.Engine(2), _engine.Arena(1024)
    builder = _engine.ProgramBuilder(engine, arena)
    x, y = (arena.array(byte, [2, 4], [16, 4], "float32") for byte in (0, 64))
    x[:], y[:] = 1, 0
    builder.binary(
        "sum", "add", _engine.View(64, 2, 4, 4), _engine.View(0, 2, 4, 4), _engine.View(64, 2, 4, 4)
    )
    program = builder.build()
    assert program.time(5) > 0
    assert (y == 5).all()
    with pytest.raises(ValueError, match="time: got 0 runs, expected 1 or more"):
        program.time(0)


def test_programs_outlive_what_they_were_made_of() -> None:
    engine, arena = _engine.Engine(2), _engine.Arena(4096)
    builder = _engine.ProgramBuilder(engine, arena)
    x, y = arena.array(0, [2, 4], [16, 4], "float32"), arena.array(64, [2, 3], [12, 4], "float32")
    weights = engine.pack(np.ones((3, 4), np.float32))
    builder.linear("y", _engine.View(0, 2, 4, 4), weights, _engine.View(64, 2, 3, 3))
    program = builder.build()
    del engine, arena, builder, weights
    gc.collect()
    x[:] = 2
    program.run()
    assert (y == 8).all()


def test_ceilings_are_measured() -> None:
    for isa in _engine.available_isas():
        assert _engine.fma_peak(isa, 0.01) > 0
    assert _engine.Engine(1).read_bandwidth(1 << 20, 2) > 0
    with pytest.raises(ValueError, match="seconds must be positive"):
        _engine.fma_peak("", 0)
