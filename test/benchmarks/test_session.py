from __future__ import annotations

import dataclasses

import pytest

from vla_simd_ros.benchmarks.agreement import DisagreementError
from vla_simd_ros.benchmarks.backend import OURS, REFERENCE, BenchmarkError, RunnerSpec
from vla_simd_ros.benchmarks.interleave import Plan
from vla_simd_ros.benchmarks.session import Options, check_options, run_bench
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.executors.settings import EngineSettings

OPTIONS = Options("", ("openvino", "onnxruntime"), Plan(2, 1), warmup=1, instruction="go")
FAITHFUL = RunnerSpec("fake_backends:Faithful")
REGISTRY = {OURS: FAITHFUL, REFERENCE: FAITHFUL, "openvino": FAITHFUL, "onnxruntime": FAITHFUL}


def run(options: Options = OPTIONS, **replaced: str) -> tuple[object, list[str]]:
    said: list[str] = []
    registry = {**REGISTRY, **{name: RunnerSpec(f"fake_backends:{fake}") for name, fake in replaced.items()}}
    return run_bench(options, [1.0, 2.0], said.append, registry), said  # type: ignore[list-item]


def test_all_runners_are_checked_and_timed() -> None:
    result, said = run(dataclasses.replace(OPTIONS, profile=True))
    assert [runner.runner for runner in result.runners] == [OURS, "openvino", "onnxruntime"]
    assert all(runner.departure == 0.0 and runner.summary.n == 4 for runner in result.runners)
    assert all([len(block) for block in runner.blocks_ms] == [2, 2] for runner in result.runners)
    assert list(result.comparisons) == ["openvino", "onnxruntime"]
    assert result.fastest_peer() in result.comparisons
    assert result.speedup_vs_fastest_peer() == result.comparisons[result.fastest_peer()].ratio
    assert result.fastest_peer("int8") is None and result.speedup_vs_fastest_peer("int8") is None
    assert result.isa == "fake"
    assert [op.name for op in result.profile] == ["a"]
    assert "block 1 of 2" in said and "block 2 of 2" in said


def test_peers_get_the_threads_that_the_engine_chose() -> None:
    result, _ = run()
    assert result.threads == 3
    assert [runner.details["threads"] for runner in result.runners] == ["3", "3", "3"]
    result, _ = run(dataclasses.replace(OPTIONS, settings=EngineSettings(threads=1)))
    assert [runner.details["threads"] for runner in result.runners] == ["1", "1", "1"]


def test_slow_queries_are_looked_at_where_there_are_many() -> None:
    result, _ = run(dataclasses.replace(OPTIONS, peers=(), plan=Plan(1, 250)))
    assert sum(result.tail.counts) == 500
    result, _ = run(dataclasses.replace(OPTIONS, peers=(), plan=Plan(1, 249)))
    assert result.tail is None


def test_alone_and_beside_a_busy_process() -> None:
    result, _ = run(dataclasses.replace(OPTIONS, peers=(), co_runner=True))
    assert result.co_run.alone.n == result.co_run.beside.n == OPTIONS.plan.queries
    assert result.co_run.comparison.blocks == OPTIONS.plan.blocks


def test_peers_are_held_to_the_engines_instruction_set() -> None:
    options = dataclasses.replace(OPTIONS, settings=EngineSettings(isa="avx2"), hold_peers=True)
    result, _ = run(options, openvino="Calibrating", **{OURS: "Calibrating"})
    assert [runner.details.get("onednn") for runner in result.runners] == ["", "AVX2", None]
    result, _ = run(dataclasses.replace(options, hold_peers=False), openvino="Calibrating")
    assert result.runners[1].details["onednn"] == ""


def test_a_peer_may_calibrate_on_the_observations() -> None:
    result, _ = run(openvino="Calibrating")
    assert result.runners[1].details["seen"] == "1,2"


def test_a_peer_may_have_a_tolerance_of_its_own() -> None:
    registry = {**REGISTRY, "openvino": RunnerSpec("fake_backends:Departing", tolerance=2e-3)}
    result = run_bench(OPTIONS, [1.0], lambda _: None, registry)  # type: ignore[list-item]
    assert result.runners[1].departure == pytest.approx(1e-3, rel=1e-4)


def test_decoders_take_turns_with_the_engines_own() -> None:
    jacobi, early = DecoderOptions("jacobi"), DecoderOptions("early_exit", sigma=0.7)
    options = dataclasses.replace(OPTIONS, peers=("openvino",), decoders=(jacobi, early))
    result, _ = run(options, **{OURS: "Spelling"})
    assert [runner.runner for runner in result.runners] == [
        OURS,
        "jacobi",
        "early_exit, sigma 0.7",
        "openvino",
    ]
    assert list(result.decoders) == ["jacobi", "early_exit, sigma 0.7"]
    assert list(result.comparisons) == ["openvino"] and result.fastest_peer() == "openvino"
    assert [runner.departure for runner in result.runners] == [0.0, 0.0, 2.0, 0.0]
    passes = [runner.decoding and runner.decoding.passes for runner in result.runners]
    assert passes == [2.0, 2.0, 1.0, None]


def test_a_decoder_is_measured_once() -> None:
    jacobi = DecoderOptions("jacobi")
    with pytest.raises(BenchmarkError, match="decoders jacobi, jacobi: one is given more than once"):
        check_options(dataclasses.replace(OPTIONS, decoders=(jacobi, jacobi)))


def test_without_peers_there_is_no_ratio() -> None:
    result, _ = run(dataclasses.replace(OPTIONS, peers=()))
    assert result.fastest_peer() is None and result.speedup_vs_fastest_peer() is None


def test_peers_are_compared_by_precision() -> None:
    registry = {**REGISTRY, "openvino": RunnerSpec("fake_backends:Departing", "int8")}
    result = run_bench(OPTIONS, [1.0, 2.0], lambda _: None, registry)  # type: ignore[list-item]
    assert [runner.precision for runner in result.runners] == ["fp32", "int8", "fp32"]
    assert (result.fastest_peer(), result.fastest_peer("int8")) == ("onnxruntime", "openvino")
    assert result.speedup_vs_fastest_peer("int8") == result.comparisons["openvino"].ratio


def test_this_engine_in_int8_may_depart_further() -> None:
    registry = {**REGISTRY, OURS: RunnerSpec("fake_backends:Departing")}
    options = dataclasses.replace(OPTIONS, int8="head")
    result = run_bench(options, [1.0], lambda _: None, registry)  # type: ignore[list-item]
    assert (result.int8, result.runners[0].precision) == ("head", "int8")
    assert result.runners[0].departure == pytest.approx(1e-3, rel=1e-4)


def test_a_peer_that_disagrees_is_named_and_nothing_is_timed() -> None:
    said: list[str] = []
    registry = {**REGISTRY, "openvino": RunnerSpec("fake_backends:Departing")}
    with pytest.raises(DisagreementError, match=r"openvino departs by 1\.00e-03"):
        run_bench(OPTIONS, [1.0], said.append, registry)  # type: ignore[list-item]
    assert not any("warm up" in line or "block" in line for line in said)


def test_a_peer_that_cannot_be_made_is_named() -> None:
    with pytest.raises(BenchmarkError, match="runner 'onnxruntime': needs a package"):
        run(onnxruntime="Impossible")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peers": ("tvm",)}, "unknown peer 'tvm'"),
        ({"hold_peers": True}, "peers cannot be held to '', expected --isa avx2 with --hold-peers"),
        ({"soak_s": 5.0}, "expected at least 30 s"),
    ],
)
def test_options_are_refused_before_anything_starts(change: dict[str, object], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        check_options(dataclasses.replace(OPTIONS, **change))  # type: ignore[arg-type]
