"""The tables and the file say what happened."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.intervals import paired_difference
from vla_simd_ros.evaluation.pilot import Counts, Decoding
from vla_simd_ros.evaluation.report import tables, to_json
from vla_simd_ros.evaluation.rollout import Result
from vla_simd_ros.evaluation.session import Condition, Outcome
from vla_simd_ros.evaluation.world import Episode

TEXTS = ("up", "down")


def outcome(condition: Condition, wins: str, other: bool = False) -> Outcome:
    """Episodes one after the other: "1" for a success."""
    results = []
    for number, win in enumerate(wins):
        text = TEXTS[number % 2]
        original = TEXTS[(number + condition.shuffled) % 2]
        counts = Counts(queries=3, executed_rows=90, starved_steps=10, stale_rows=2, query_ms=8.0 + number)
        results.append(
            Result(
                episode=Episode(number, 50 + number, original, text),
                success=win == "1",
                steps=60 if win == "1" else 200,
                reached=frozenset([text] if win == "1" else (["sideways"] if other else [])),
                failure="" if win == "1" else "not within 200 steps",
                counts=counts,
                state={} if win == "1" else {"joints": [0.5, 1.0]},
            )
        )
    return Outcome(condition, tuple(results), 1.0 / 30.0)


FP32 = outcome(Condition("impact", "fp32", Execution()), "1111011110")
INT8 = outcome(Condition("impact", "int8", Execution()), "1101011110", other=True)
TOLD = outcome(Condition("impact", "fp32", Execution(), shuffled=True), "1111111111")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def row(text: str, name: str) -> dict[str, str]:
    """Cells of the row that starts with a name, by the heading of the table that it is in."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"| {name} "))
    head = max(number for number in range(at) if set(lines[number + 1]) <= set("|-: ") and lines[number])
    return dict(zip(cells(lines[head]), cells(lines[at]), strict=True))


def test_conditions_side_by_side() -> None:
    text = tables([FP32, INT8])
    first, second = row(text, "fp32"), row(text, "int8")
    assert first["Successes"] == "8/10"
    assert first["Success %"] == "80.0"
    assert first["95 % interval"] == "[49.0, 94.3]"
    assert first["Time to success (s)"] == "2.0"
    assert first["Starved steps"] == "10.0%"
    assert first["Query (ms)"] == "12.5"
    assert first["Points over the first"] == ""
    assert (first["Other goal"], second["Other goal"]) == ("0", "3")
    flags = [[result.success for result in each.results] for each in (INT8, FP32)]
    expected = paired_difference(*flags)
    assert second["Points over the first"] == (
        f"-10.0 [{expected.low * 100:+.1f}, {expected.high * 100:+.1f}]"
    )


def test_decoders_side_by_side() -> None:
    """Two episodes of 3 queries each: 12 and 6 passes for 48 tokens, in 2 and 1 s."""

    def decoded(options: DecoderOptions, passes: int, seconds: float) -> Outcome:
        made = outcome(Condition("impact", "fp32", Execution(), decoder=options), "11")
        decoding = Decoding(passes, 48, seconds, 10.0 / seconds, 90.0 / seconds)
        results = [replace(each, counts=replace(each.counts, decoding=decoding)) for each in made.results]
        return replace(made, results=tuple(results))

    jacobi, early = DecoderOptions("jacobi"), DecoderOptions("early_exit", sigma=0.7, block=4)
    expert = outcome(Condition("expert"), "11")
    text = tables([decoded(jacobi, 12, 2.0), decoded(early, 6, 1.0), expert])
    first = next(row(text, line.split("|")[1].strip()) for line in text.splitlines() if ", jacobi" in line)
    second = next(row(text, line.split("|")[1].strip()) for line in text.splitlines() if "early_" in line)
    columns = ("Passes a query", "Tokens a pass", "Tokens/s: least", "mean", "most")
    assert [first[name] for name in columns] == ["4.0", "4.0", "5", "24", "45"]
    assert [second[name] for name in columns] == ["2.0", "8.0", "10", "48", "90"]
    assert [row(text, "expert")[name] for name in columns] == [""] * 5


def test_instructions_one_by_one() -> None:
    up = row(tables([FP32, INT8]), "up")
    assert up["fp32"] == "4/5 [37.6, 96.4]"
    assert up["int8"] == "3/5 [23.1, 88.2]"


def test_shuffled_instructions_have_an_original_goal_and_no_base_among_the_others() -> None:
    text = tables([FP32, TOLD])
    assert row(text, "shuffled")["Original goal %"] == "0.0 [0.0, 27.8]"
    assert row(text, "as they are")["Original goal %"] == ""
    assert row(text, "shuffled")["Points over the first"] == ""


def test_failures_name_their_seeds() -> None:
    text = tables([FP32])
    assert "Failures of impact (the first 2 of 2):" in text
    assert "- seed 54, 'up': not within 200 steps" in text
    assert "Failures" not in tables([TOLD])


def test_an_expert_has_no_queries() -> None:
    results = tuple(
        Result(Episode(number, number, "up", "up"), True, 30, frozenset(["up"])) for number in range(2)
    )
    found = row(tables([Outcome(Condition("expert"), results, 0.02)]), "expert")
    assert (found["Query (ms)"], found["Starved steps"], found["Time to success (s)"]) == ("", "", "0.6")


def test_the_file_holds_every_episode_and_is_json() -> None:
    content = json.loads(json.dumps(to_json([FP32, INT8], {"machine": "here"}), allow_nan=False))
    assert content["measured_with"] == {"machine": "here"}
    first, second = content["conditions"]
    assert first["settings"]["execution"]["mode"] == "time_aligned"
    assert first["success"]["successes"] == 8
    assert first["difference_from_first"] is None
    assert math.isclose(second["difference_from_first"]["difference"], -0.1)
    assert [episode["seed"] for episode in first["episodes"]] == list(range(50, 60))
    assert first["episodes"][4]["failure"] == "not within 200 steps"
    assert first["episodes"][4]["state"] == {"joints": [0.5, 1.0]}
    assert first["episodes"][4]["query_ms"] == 12.0


def test_an_unknown_query_time_is_null() -> None:
    results = (Result(Episode(0, 0, "up", "up"), True, 30, frozenset(["up"])),)
    content = json.dumps(to_json([Outcome(Condition("expert"), results, 0.02)], {}), allow_nan=False)
    assert json.loads(content)["conditions"][0]["episodes"][0]["query_ms"] is None
