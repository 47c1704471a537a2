from __future__ import annotations

import dataclasses
import json

from vla_simd_ros.benchmarks.co_runner import CoRun
from vla_simd_ros.benchmarks.decoding import DecodingSummary
from vla_simd_ros.benchmarks.disturbances import Disturbance
from vla_simd_ros.benchmarks.interleave import Plan
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.report import Context, to_json, to_markdown
from vla_simd_ros.benchmarks.session import BenchResult, Options, RunnerResult
from vla_simd_ros.benchmarks.soak import Soak
from vla_simd_ros.benchmarks.statistics import Summary, compare, summarize
from vla_simd_ros.benchmarks.tail import find_tail
from vla_simd_ros.benchmarks.work import Work
from vla_simd_ros.decoding.decoders import DecoderOptions

OPTIONS = Options("ckpt", ("slow", "quick"), Plan(2, 1), warmup=3, instruction="pick it up")
CONTEXT = Context(
    policy="impact",
    cameras={"front": "480x640", "wrist": "240x320"},
    checkpoint={"folder": "ckpt"},
    observations="4 of seed 0",
    machine={"cpu": "Some CPU", "load_average_before": 0.1, "date": "today", "command": "vla_simd bench x"},
)
TIMES = {
    "ours": [[10.0, 10.0], [20.0, 20.0]],
    "slow": [[30.0, 30.0], [60.0, 60.0]],
    "quick": [[12.0], [22.0]],
}


def result() -> BenchResult:
    runners = [
        RunnerResult(
            name, "fp32", summarize([ms for block in blocks for ms in block]), blocks, 1e-6, {"version": "1"}
        )
        for name, blocks in TIMES.items()
    ]
    comparisons = {peer: compare(TIMES[peer], TIMES["ours"]) for peer in ("slow", "quick")}
    return BenchResult("avx2", "", 2, runners, comparisons, soak=None, co_run=None, profile=None)


def test_json_holds_what_was_promised() -> None:
    report = json.loads(json.dumps(to_json(result(), OPTIONS, CONTEXT)))
    assert report["policy"] == "impact" and report["cpu"] == "Some CPU"
    assert report["isa"] == "avx2" and report["threads"] == 2
    assert report["fastest_peer"] == "quick"
    assert report["speedup_vs_fastest_peer"] == (12.0 / 10.0 + 22.0 / 20.0) / 2
    ours = report["results"][0]
    assert {key: ours[key] for key in ("runner", "precision", "median_ms", "p95_ms", "p99_ms", "n")} == {
        "runner": "ours",
        "precision": "fp32",
        "median_ms": 15.0,
        "p95_ms": 20.0,
        "p99_ms": 20.0,
        "n": 4,
    }


def test_json_holds_all_that_a_repetition_needs() -> None:
    report = to_json(result(), OPTIONS, CONTEXT)
    assert [entry["blocks_ms"] for entry in report["results"]] == list(TIMES.values())
    assert report["results"][1]["details"] == {"version": "1"}
    protocol = report["protocol"]
    assert (protocol["warmup"], protocol["blocks"], protocol["queries_per_visit"]) == (3, 2, 1)
    assert protocol["instruction"] == "pick it up"
    assert report["machine"]["command"] == "vla_simd bench x"
    assert report["soak"] is None and report["profile"] is None


def test_slow_queries_are_told() -> None:
    tail = find_tail([1.0, 1.0, 4.0], [Disturbance(stolen_ms=10.0 * i) for i in range(3)])
    slow = dataclasses.replace(result(), tail=tail)
    assert to_json(slow, OPTIONS, CONTEXT)["tail"]["slow"]["mean_ms"] == 4.0
    assert "| slower " in to_markdown(slow, OPTIONS, CONTEXT)
    assert to_json(result(), OPTIONS, CONTEXT)["tail"] is None


def test_json_of_soak_and_profile() -> None:
    op = OpTime("a", "linear", "linear", "fp32", "head", "1x1x1", 1, 1, Work(2, 2, 4, 12), 0.5)
    full = dataclasses.replace(
        result(), soak=Soak(90.0, Summary(1, 2, 3, 4), Summary(5, 6, 7, 8)), profile=[op]
    )
    report = to_json(full, OPTIONS, CONTEXT)
    assert report["soak"]["last"]["median_ms"] == 5
    assert report["profile"][0]["ms"] == 0.5


def test_decoders_have_a_table_of_their_own() -> None:
    made = result()
    summary = DecodingSummary(passes=2.5, fixed=19.2, least=900.0, mean=1000.0, most=1100.0, pass_least=700.0)
    programs = {"query": 3.0, "step": 5.25}
    runners = [
        dataclasses.replace(runner, decoding=summary, programs_ms=programs) for runner in made.runners[:2]
    ]
    slow = {"slow": made.comparisons["slow"]}
    made = dataclasses.replace(made, runners=runners, comparisons={}, decoders=slow)
    options = dataclasses.replace(OPTIONS, peers=(), decoder=DecoderOptions("jacobi"))
    text = to_markdown(made, options, CONTEXT)
    assert "Fastest peer" not in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    ours, other = ([row for row in cells if row[0] == name][-1] for name in ("jacobi", "slow"))
    assert ours == ["jacobi", "3.00", "5.25", "2.5", "19.2", "900", "1000", "1100", "700"]
    assert other[1:] == ours[1:] and next(row[6] for row in cells if row[0] == "slow").startswith("3.000 (")
    report = json.loads(json.dumps(to_json(made, options, CONTEXT)))
    assert report["decoder"] == "jacobi" and report["decoders"]["slow"]["ratio"] == 3.0
    assert report["results"][1]["decoding"]["passes"] == 2.5
    assert to_json(result(), OPTIONS, CONTEXT)["decoder"] is None


def test_markdown_states_conditions_then_the_table() -> None:
    text = to_markdown(result(), OPTIONS, CONTEXT)
    assert "policy: impact; cameras: front 480x640, wrist 240x320" in text
    assert "CPU: Some CPU; ISA: avx2; threads: 2; in int8: nothing" in text
    assert "3 queries to warm up, then 4 timed in 2 blocks (tails are rough below 500)" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    assert rows[2][:6] == ["ours", "fp32", "15.0", "20.0", "20.0", "4"]
    assert rows[3][6] == "3.000 (3.000 to 3.000)"
    assert "Fastest peer in fp32: quick; it takes 1.150 times as long" in text
    assert "Fastest peer in int8" not in text
    assert "longer in 2 of 2 blocks" in text


def test_programs_of_a_policy_that_iterates_are_told() -> None:
    ours, slow, quick = result().runners
    ours = dataclasses.replace(ours, programs_ms={"query": 4.0, "step": 6.0})
    iterating = dataclasses.replace(result(), runners=[ours, slow, quick])
    options = dataclasses.replace(OPTIONS, steps=10)
    text = to_markdown(iterating, options, CONTEXT)
    assert "wrist 240x320; steps: 10" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    assert ["Program, median ms", "query", "10 steps", "a step"] in rows
    assert rows[-1] == ["ours", "4.0", "6.0", "0.60"]
    report = to_json(iterating, options, CONTEXT)
    assert (report["steps"], report["results"][0]["programs_ms"]["step"]) == (10, 6.0)


def test_peers_in_int8_are_compared_apart() -> None:
    ours, slow, quick = result().runners
    mixed = dataclasses.replace(
        result(), int8="encoder.ffn,head", runners=[ours, slow, dataclasses.replace(quick, precision="int8")]
    )
    text = to_markdown(mixed, OPTIONS, CONTEXT)
    assert "in int8: encoder.ffn,head" in text
    assert "Fastest peer in fp32: slow; it takes 3.000 times" in text
    assert "Fastest peer in int8: quick; it takes 1.150 times" in text
    report = to_json(mixed, OPTIONS, CONTEXT)
    assert (report["fastest_peer"], report["fastest_int8_peer"]) == ("slow", "quick")
    assert report["speedup_vs_fastest_int8_peer"] == (12.0 / 10.0 + 22.0 / 20.0) / 2


def test_markdown_without_peers_has_no_ratio() -> None:
    alone = dataclasses.replace(result(), runners=result().runners[:1], comparisons={})
    text = to_markdown(alone, OPTIONS, CONTEXT)
    assert "Fastest peer" not in text and text.endswith("|\n")


def test_markdown_of_a_soak() -> None:
    soaked = dataclasses.replace(result(), soak=Soak(90.0, Summary(1, 2, 3, 4), Summary(5, 6, 7, 8)))
    text = to_markdown(soaked, OPTIONS, CONTEXT)
    assert "90 s without pause:" in text
    assert "| last 15 s  |       5.0 |" in text


def test_a_co_run_is_told_in_json_and_markdown() -> None:
    run = CoRun(3, Summary(10, 11, 12, 4), Summary(15, 16, 17, 4), compare([[15.0]], [[10.0]]))
    beside = dataclasses.replace(result(), co_run=run)
    assert to_json(beside, OPTIONS, CONTEXT)["co_run"]["comparison"]["ratio"] == 1.5
    text = to_markdown(beside, OPTIONS, CONTEXT)
    assert "beside another process takes 1.500 times as long" in text
    assert "| a busy process on CPU 3 |      15.0 |" in text


def test_enough_queries_need_no_note_on_tails() -> None:
    long = dataclasses.replace(OPTIONS, plan=Plan(10, 25))
    assert "tails are rough" not in to_markdown(result(), long, CONTEXT)
