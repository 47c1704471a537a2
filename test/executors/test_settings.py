from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_policy import INPUTS, small_policy

from vla_simd_ros import _engine
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.settings import EngineSettings, SettingError, keep_exact, parse_settings, settings
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy

TABLE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_texts_become_values() -> None:
    changes = parse_settings(["threads=2", "affinity=0,3", "isa = avx2", "waiting=passive", "threads=3"])
    assert changes == {"threads": 3, "affinity": (0, 3), "isa": "avx2", "waiting": "passive"}
    assert parse_settings(["affinity="]) == {"affinity": ()}
    assert EngineSettings().but(**changes).changed() == changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("threads", "'threads' is no setting, expected NAME=VALUE"),
        ("tiles=4", "setting 'tiles' is unknown, expected one of threads, affinity, isa, waiting"),
        ("threads=two", "threads='two': expected 0 to 1024"),
        ("threads=-1", "threads=-1: expected 0 to 1024"),
        ("threads=1025", "threads=1025: expected 0 to 1024"),
        ("affinity=0;1", "affinity='0;1': expected 0 to"),
        ("affinity=0,1,0", r"affinity=\(0, 1, 0\): expected each CPU once"),
        ("affinity=-1", r"affinity=\(-1,\): expected 0 to"),
        ("waiting=idle", "waiting='idle': expected one of active, passive"),
        ("convolution=fft", "convolution='fft': expected one of auto, exact, direct, flat, winograd2"),
        ("spin_us=1.5", "spin_us='1.5': expected 0 to 1000000"),
    ],
)
def test_what_cannot_be_set_is_said(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        EngineSettings().but(**parse_settings([text]))


def test_exact_names_an_algorithm_unless_there_is_one() -> None:
    assert keep_exact({"threads": 2}) == {"threads": 2, "convolution": "exact", "linear": "direct"}
    layers = "9x14x20-24k3s1p1=winograd2, 9x14x24-24k3s1p0=direct"
    changes = {"convolution": "direct", "linear": "direct", "convolution_layers": layers}
    assert keep_exact(changes) == changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"convolution": "auto"},
            "convolution='auto': expected one of exact, direct, flat, winograd2 with exact",
        ),
        ({"linear": "strassen"}, "linear='strassen': expected one of direct with exact"),
        (
            {"convolution_layers": "9x14x20-24k3s1p1=winograd4"},
            "9x14x20-24k3s1p1 has 'winograd4', expected one",
        ),
        ({"convolution_layers": "all"}, "convolution_layers: 'all' is no layer, expected"),
    ],
)
def test_exact_refuses_what_rounds_more(changes: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        keep_exact(changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", True),
        ("threads", "2"),
        ("affinity", "01"),
        ("affinity", 1),
        ("affinity", None),
        ("threads", (2,)),
        ("isa", 2),
        ("isa", "avx2\ud800"),
        ("isa", "avx2\n"),
        ("waiting", None),
    ],
)
def test_values_have_their_type(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"{name}="):
        EngineSettings(**{name: value})


def test_lists_of_cpus_are_taken() -> None:
    assert EngineSettings(affinity=[0, 1]) == EngineSettings(affinity=(0, 1))  # type: ignore[arg-type]


def test_keywords_replace_single_settings() -> None:
    executor = SimdExecutor(EngineSettings(threads=2, isa="portable"), threads=1, waiting="passive")
    assert (executor.threads, executor.isa, executor.settings.waiting) == (1, "portable", "passive")


def test_what_the_machine_has_not_is_said_by_the_same_error() -> None:
    with pytest.raises(SettingError, match="isa='mmx': unknown instruction set, available here: "):
        SimdExecutor(isa="mmx")
    with pytest.raises(SettingError, match=r"affinity: .*60000"):
        SimdExecutor(affinity=(60000,))


@pytest.mark.parametrize(
    "text",
    [
        "threads=1",
        "threads=3",
        f"affinity={min(os.sched_getaffinity(0))}",
        "waiting=passive",
        "spin_us=0",
        "schedule=static",
        "parallel_cutoff=0",
        "parallel_cutoff=1000000000",
        "block_rows=1",
        "block_rows=64",
    ],
)
def test_settings_that_only_divide_the_work_do_not_change_a_bit(text: str) -> None:
    expected = SimdExecutor(threads=2).load(small_policy())
    changes = {"threads": 2, **parse_settings([text])}
    loaded = SimdExecutor(**changes).load(small_policy())
    for lifetime, inputs in INPUTS.items():
        wanted, got = expected.run(lifetime, inputs), loaded.run(lifetime, inputs)
        assert all(np.array_equal(got[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("text", ["weight_packing=off", "min_panel_rows=4", "min_panel_rows=16"])
def test_weights_that_are_read_row_by_row_give_the_same_actions(text: str) -> None:
    changes = parse_settings([text])
    expected = ReferenceExecutor().load(small_policy())
    loaded = SimdExecutor(threads=2, **changes).load(small_policy())
    for lifetime, inputs in INPUTS.items():
        wanted, got = expected.run(lifetime, inputs), loaded.run(lifetime, inputs)
        for name, value in wanted.items():
            assert np.abs(got[name] - value).max() <= 2e-6 * np.abs(value).max()


def bfloat16_values(rng: np.random.Generator, *shape: int) -> Array:
    values: Array = rng.standard_normal(shape, np.float32)
    values.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
    return values


def product(rng: np.random.Generator, rows: int, cols: int) -> CompiledPolicy:
    b = Builder()
    x = b.input("x", (rows, 530), DType.F32, Lifetime.QUERY)
    b.output("y", b.linear(x, b.constant("w", bfloat16_values(rng, cols, 530)), name="y"))
    return compile_graph(b.graph(), FoldCache())


def convolution(rng: np.random.Generator, stride: int) -> CompiledPolicy:
    b = Builder()
    x = b.input("x", (9, 11, 20), DType.F32, Lifetime.QUERY)
    filters = b.constant("w", bfloat16_values(rng, 70, 3, 3, 20))
    b.output("y", b.conv2d(x, filters, stride=stride, padding=1, name="y"))
    return compile_graph(b.graph(), FoldCache())


@pytest.mark.parametrize("isa", _engine.available_isas())
@pytest.mark.parametrize(
    ("make", "size", "changes"),
    [
        *((partial(product, cols=cols), rows, {}) for rows in (1, 9, 100) for cols in (6, 70)),
        (partial(product, cols=70), 9, {"weight_packing": "off"}),
        *((convolution, stride, {"convolution": how}) for stride in (1, 2) for how in ("direct", "flat")),
    ],
)
def test_bfloat16_weights_that_stay_so_change_no_bit(
    isa: str, make: Callable[[np.random.Generator, int], CompiledPolicy], size: int, changes: dict[str, str]
) -> None:
    rng = np.random.default_rng(3)
    compiled = make(rng, size)
    query = compiled.programs[Lifetime.QUERY]
    inputs = {"x": rng.standard_normal(query.inputs["x"].shape, np.float32)}
    results, kept = [], []
    for storage in ("float32", "auto"):
        executor = SimdExecutor(threads=1, isa=isa, weight_storage=storage, **changes)
        results.append(executor.load(compiled).run(Lifetime.QUERY, inputs)["y"])
        kept.append(executor.weight_bytes)
    assert np.array_equal(*results)
    assert kept[0]["float32"] == 2 * kept[1]["bfloat16"] > 0 == kept[1]["float32"]


def test_materialized_attention_gives_the_same_actions() -> None:
    expected = ReferenceExecutor().load(small_policy())
    executor = SimdExecutor(threads=2, attention="materialized")
    loaded = executor.load(small_policy())
    for lifetime, inputs in INPUTS.items():
        wanted, got = expected.run(lifetime, inputs), loaded.run(lifetime, inputs)
        for name, value in wanted.items():
            assert np.abs(got[name] - value).max() <= 2e-6 * np.abs(value).max()
    attention = [op for p in small_policy().programs.values() for op in p.ops if op.kind == "attention"]
    assert {executor.kernel_name(op) for op in attention} == {f"attention_materialized_{executor.isa}"}


def test_kernels_are_named_after_how_they_read_the_weights() -> None:
    half_a_tile = _engine.Engine(threads=1, isa="portable").tile[1] // 2
    rng = np.random.default_rng(0)
    op, narrow = (
        product(rng, 9, cols).programs[Lifetime.QUERY].ops[0] for cols in (half_a_tile + 1, half_a_tile)
    )
    rows = op.output.shape[0]
    assert SimdExecutor(threads=1, isa="portable").kernel_name(narrow) == "linear_rows_portable"
    for changes, kernel in (
        ({}, "linear_"),
        ({"weight_packing": "off"}, "linear_rows_"),
        ({"min_panel_rows": rows}, "linear_"),
        ({"min_panel_rows": rows + 1}, "linear_rows_"),
    ):
        executor = SimdExecutor(threads=1, isa="portable", **changes)
        assert executor.kernel_name(op).partition(executor.isa)[0] == kernel


def test_the_document_lists_all_settings_with_their_defaults() -> None:
    rows = [row.split("|") for row in TABLE.read_text().splitlines() if row.startswith("| `")]
    listed = {name.strip(" `"): default.strip(" `") for _, name, default, *_ in rows}
    defaults = {name: getattr(EngineSettings(), name) for name in settings()}
    texts = {
        name: "any" if value == () else '""' if value == "" else str(value)
        for name, value in defaults.items()
    }
    assert listed == texts
