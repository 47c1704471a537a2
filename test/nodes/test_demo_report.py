"""The demo's statistics, table and pictures, from events made up here."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.control.latency_budget import STAGES as BUDGET_STAGES
from vla_simd_ros.control.latency_budget import LatencyBudget
from vla_simd_ros.nodes.demo_recording import (
    STAGES,
    Budget,
    Chunk,
    Decoding,
    ExecutorReport,
    Joints,
    Recording,
    Timing,
)
from vla_simd_ros.nodes.demo_report import distribution, failure, observation_ages, summarize
from vla_simd_ros.nodes.demo_table import format_report

MS = 1_000_000
START = 1_700_000_000_000_000_000
PERIOD = 33 * MS
NAMES = ["pan", "lift"]
NAN = math.nan


def executor_report(number: int, state: str = "EXECUTING", **values: float) -> ExecutorReport:
    defaults = {
        "executed_row_age_ms": 400.0 + number,
        "executed_steps": number,
        "sequence": 1 + number // 10,
        "stale_rows_dropped": 7,
        "starved_steps": 2,
        "position_limited": 0,
        "velocity_limited": 5,
        "acceleration_limited": 1,
        "delay_steps_median": 12,
        "delay_steps_p95": 14,
        "delay_steps_p99": 15,
        "c1_margin_steps": 38,
        "c1_margin_p99_steps": 35,
        "c2_margin_steps": 26,
        "c2_margin_p99_steps": -3,
        "starvation_probability": 0.125,
        "action_supply_rate": 122.4,
        "splice_step_max": 0.25,
        "buffered_steps": 30,
    }
    return ExecutorReport(START + number * PERIOD, "lagged", state, {**defaults, **values}, {"not_finite": 1})


@pytest.fixture
def recording() -> Recording:
    """Four seconds: ten chunks in two epochs, each 400 ms after its observation."""
    made = Recording(list(NAMES))
    made.begin(START)
    made.end = START + 4000 * MS
    made.instructions = [(START, "pick"), (START + 2000 * MS, "push")]
    for number in range(10):
        stamp = START + number * 350 * MS
        epoch = 1 if number < 5 else 2
        text = "pick" if number < 5 else "push"
        made.chunks.append(Chunk(stamp, stamp + 400 * MS, number + 1, epoch, text, 0.033, 50, 50))
        durations = {stage: 10.0 * (number + 1) for stage in STAGES}
        durations["episode_ms"] = 30.0 if number in (0, 5) else 0.0
        made.timings.append(Timing(stamp, epoch, durations))
    for number in range(120):
        made.joint_states.append(Joints(START + number * PERIOD, [0.01 * number, -0.01 * number]))
        made.commands.append(Joints(START + number * PERIOD, [0.011 * number, -0.011 * number]))
        state = "STARVED" if 60 <= number < 70 else "EXECUTING"
        made.executor.append(executor_report(number, state))
    made.diagnostics = {
        "robot_sim_node: simulation": {"front: frames sent": "120", "wrist: frames sent": "119"},
        "policy_node: observations": {"front: frames received": "118", "wrist: frames received": "0"},
        "chunk_executor_node: execution": {"chunks received": "10"},
    }
    return made


def test_distribution() -> None:
    result = distribution([*range(101), NAN, math.inf])
    assert (result.count, result.median, result.p95, result.p99) == (101, 50.0, 95.0, 99.0)


def test_distribution_of_nothing_is_unknown() -> None:
    result = distribution([NAN])
    assert result.count == 0
    assert math.isnan(result.median) and math.isnan(result.p99)


def test_latency_by_stage(recording: Recording) -> None:
    latency = summarize(recording, []).latency
    assert list(latency) == [*STAGES, "episode_ms"]
    assert latency["query_ms"].median == 55.0
    assert latency["query_ms"].count == 10
    # The episode program ran twice; the queries without it do not pull its median down.
    assert (latency["episode_ms"].count, latency["episode_ms"].median) == (2, 30.0)


def test_advice_is_by_the_queries_of_the_run(recording: Recording) -> None:
    report = summarize(recording, [])
    assert report.advice.startswith("Use ")
    assert format_report(report).splitlines()[-1].endswith(report.advice)
    slow = {"observation_to_publish_ms": 4100.0, "observation_age_ms": 100.0}
    recording.timings = [replace(t, milliseconds={**t.milliseconds, **slow}) for t in recording.timings]
    assert summarize(recording, []).advice.startswith("Too slow for 30.303 Hz: even lagged needs")
    assert "fewer solver steps" not in summarize(recording, []).advice
    recording.diagnostics["policy_node: supply"] = {"could take fewer solver steps": "True"}
    assert "try fewer solver steps, int8" in summarize(recording, []).advice
    recording.timings = []
    assert summarize(recording, []).advice == ""


def test_a_simulation_that_stood_still_is_told(recording: Recording) -> None:
    assert not any(
        line.startswith("simulation") for line in format_report(summarize(recording, [])).split("\n")
    )
    recording.diagnostics["robot_sim_node: simulation"] = {"stalls": "2", "seconds given up": "0.733"}
    report = summarize(recording, [])
    assert (report.stalls, report.given_up_s) == (2, 0.733)
    (line,) = (line for line in format_report(report).splitlines() if line.startswith("simulation"))
    assert line.split(maxsplit=1)[1] == "stood still 2 times, 0.7 s in all: leave the CPU to it"


def test_how_tokens_were_decoded_is_summed_up(recording: Recording) -> None:
    assert summarize(recording, []).decoding is None
    assert "decoding" not in format_report(summarize(recording, []))
    for number, timing in enumerate(recording.timings[:4]):
        fixed = number < 3
        decoding = Decoding(
            10 + number, 48, 4.5, 100.0 - number, 900.0, "fixed_point" if fixed else "deadline", fixed
        )
        recording.timings[number] = replace(timing, decoding=decoding)
    report = summarize(recording, [])
    assert report.decoding is not None
    assert (report.decoding.passes.median, report.decoding.passes.count) == (11.5, 4)
    assert report.decoding.min_tokens_per_second == 97.0
    assert report.decoding.exits == {"fixed_point": 3, "deadline": 1}
    lines = {line[:34].strip(): line[34:].split() for line in format_report(report).splitlines()}
    assert lines["tokens"] == ["48.0", "48.0", "48.0", "4"]
    assert lines["ended by"] == ["fixed_point", "3,", "deadline", "1"]
    assert lines["greedy tokens"] == ["in", "3", "of", "4", "queries"]


def test_the_means_of_the_latency_budget_add_up(recording: Recording) -> None:
    for number in range(4):
        stages = {stage: float(number + index) for index, stage in enumerate(BUDGET_STAGES)}
        total = sum(stages.values()) + 0.25
        recording.budgets.append(Budget(START, number, LatencyBudget(stages, total)))
    report = summarize(recording, [])
    budget = {stage: values.mean for stage, values in report.budget.items()}
    assert sum(budget[stage] for stage in BUDGET_STAGES) + budget["unaccounted_ms"] == budget["total_ms"]
    lines = format_report(report).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("from capture to first command"))
    table = {line[:34].strip(): line[34:].split() for line in lines[start + 1 : start + 14]}
    assert table["publication to arrival"] == ["10.50", "11.85", "11.97", "4"]
    assert table["capture to command, measured"] == ["71.75", "86.60", "87.92", "4"]
    assert table["not accounted for"] == ["0.25", "0.25", "0.25", "4"]


def test_age_counts_only_commands_that_executed_a_row(recording: Recording) -> None:
    ages = observation_ages(recording)
    assert len(ages) == 110
    assert ages[0] == (START, 400.0)
    assert summarize(recording, []).observation_age.count == 110


def test_two_reports_about_one_command_count_once(recording: Recording) -> None:
    again = recording.executor[-1]
    recording.executor.append(replace(again, time=again.time + MS))
    assert len(observation_ages(recording)) == 110


def test_counters_are_those_of_the_last_report(recording: Recording) -> None:
    report = summarize(recording, [])
    assert report.queries == 10
    assert report.epochs == 2
    assert report.seconds == 4.0
    assert report.commands == 120
    assert report.executed_steps == 119
    assert (report.stale_rows, report.starved_steps) == (7, 2)
    assert report.limited_commands == {"position": 0, "velocity": 5, "acceleration": 1}
    assert report.chunks_rejected == {"not_finite": 1}
    assert (report.delay_steps.median, report.delay_steps.p99) == (12, 15)
    assert report.margins == {"C1": 38, "C1 at p99": 35, "C2": 26, "C2 at p99": -3}
    assert (report.mode, report.window) == ("lagged", 50)
    assert report.window_ms == pytest.approx(1650.0)
    assert report.chunk_interval.median == pytest.approx(350.0)


def test_frames_are_counted_by_camera(recording: Recording) -> None:
    cameras = summarize(recording, ["front", "wrist", "top"]).cameras
    assert (cameras["front"].sent, cameras["front"].received) == (120, 118)
    assert (cameras["wrist"].sent, cameras["wrist"].received) == (119, 0)
    assert (cameras["top"].sent, cameras["top"].received) == (None, None)


def test_a_run_without_any_message_is_reported_as_such() -> None:
    empty = Recording(list(NAMES))
    report = summarize(empty, ["front"])
    assert (report.queries, report.commands, report.executed_steps) == (0, 0, 0)
    assert all(math.isnan(value) for value in report.margins.values())
    text = format_report(report)
    assert "nan" not in text
    assert "0 in 0 epochs" in text


def test_failure_says_what_to_try(recording: Recording) -> None:
    report = summarize(recording, [])
    assert failure(report) == ""
    idle = replace(report, executed_steps=0)
    assert failure(idle) == "no row of a chunk was executed"
    assert failure(replace(idle, queries=0)) == "the policy answered no query"
    late = failure(replace(idle, chunks_rejected={"expired": 3}))
    assert late.startswith("chunks came 55 ms after their observation, when their rows, meant for 1650 ms")
    assert "--mode lagged" in late


def test_table(recording: Recording) -> None:
    lines = format_report(summarize(recording, ["front"])).splitlines()
    table = {line[:34].strip(): line[34:].split() for line in lines if line}
    assert table["query program"] == ["55.0", "95.5", "99.1", "10"]
    assert table["episode program (once an epoch)"] == ["30.0", "30.0", "30.0", "2"]
    assert table["observation age at command"][-1] == "110"
    assert table["starved steps"] == ["2"]
    assert table["margin of C1 (steps)"] == ["+38.0", "(holds)"]
    assert " ".join(table["margin of C2 at p99 (steps)"]) == "-3.0 (DOES NOT HOLD)"
    assert " ".join(table["window H and delay d (steps)"]) == "H 50; d median 12.0, p95 14.0, p99 15.0"
    assert " ".join(table["frames, front"]) == "120 sent, 118 received"
    assert " ".join(table["chunks rejected"]) == "not_finite 1"


def test_begin_drops_what_came_before_but_keeps_the_instruction(recording: Recording) -> None:
    recording.begin(START + 5000 * MS)
    assert not recording.chunks and not recording.commands and not recording.executor
    assert recording.instructions == [(START + 5000 * MS, "push")]
    assert recording.seconds(START + 6000 * MS) == 1.0


def test_plain_has_no_nan() -> None:
    pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")
    from vla_simd_ros.nodes.demo_run import plain

    value = plain({"a": (1, NAN, [NAN, 2.5]), "b": {"c": "x"}})
    assert json.loads(json.dumps(value, allow_nan=False)) == {"a": [1, None, [None, 2.5]], "b": {"c": "x"}}


def test_pictures(recording: Recording, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'vla_simd_ros[sim]'")
    import cv2

    from vla_simd_ros.nodes.demo_plot import draw_frames, draw_timeline

    draw_timeline(recording, "a title", tmp_path / "timeline.png")
    frames = {name: np.full((48, 64, 3), shade, np.uint8) for name, shade in (("front", 40), ("wrist", 200))}
    draw_frames(frames, tmp_path / "frames.png")
    timeline, pair = (cv2.imread(str(tmp_path / name)) for name in ("timeline.png", "frames.png"))
    assert timeline.shape[0] > 800 and timeline.shape[1] > 1200
    assert timeline.std() > 5.0
    assert (pair == 40).all(axis=-1).any() and (pair == 200).all(axis=-1).any()


def test_a_picture_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'vla_simd_ros[sim]'")
    from vla_simd_ros.nodes.demo_plot import draw_timeline

    empty = Recording(list(NAMES))
    empty.end = 10 * MS
    draw_timeline(empty, "nothing happened", tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 0
