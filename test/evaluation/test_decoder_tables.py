"""The tables of a study of decoders."""

from __future__ import annotations

import json

from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.decoder_speed import Speed
from vla_simd_ros.evaluation.decoder_study import CONSISTENCY, FINE_TUNED, TEACHER, Arm, Row
from vla_simd_ros.evaluation.decoder_tables import tables, to_json
from vla_simd_ros.evaluation.rollout import Result
from vla_simd_ros.evaluation.session import Condition, Outcome
from vla_simd_ros.evaluation.world import Episode


def row(training: str, decoder: DecoderOptions, wins: str, seconds: float, passes: int) -> Row:
    episodes = [Episode(n, 100 + n, "go", "go") for n in range(len(wins))]
    results = tuple(
        Result(episode, win == "+", 30, frozenset()) for episode, win in zip(episodes, wins, strict=True)
    )
    outcome = Outcome(Condition(training, decoder=decoder), results, 1 / 30)
    speed = Speed(
        (passes, passes), (60, 60), (seconds, 2 * seconds), (1e3 * seconds + 10, 1e3 * seconds + 10)
    )
    return Row(Arm(training, decoder), outcome, speed)


def rows() -> list[Row]:
    exits = {sigma: DecoderOptions("early_exit", sigma) for sigma in (0.5, 0.7)}
    return [
        row(TEACHER, DecoderOptions("autoregressive"), "++++", 0.04, 60),
        row(TEACHER, DecoderOptions("jacobi"), "++++", 0.05, 12),
        row(FINE_TUNED, DecoderOptions("jacobi"), "++--", 0.02, 8),
        row(CONSISTENCY, DecoderOptions("jacobi"), "+++-", 0.01, 4),
        row(CONSISTENCY, exits[0.5], "+++-", 0.005, 2),
        row(CONSISTENCY, exits[0.7], "++++", 0.008, 3),
    ]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_components_are_told_apart_and_compared_with_the_first() -> None:
    first, _, second = tables(rows(), 0.5, (0.7, 0.5), 10).partition("\n\n")
    found = [cells(line) for line in first.splitlines()]
    assert found[0][:6] == [
        "Parallel decoding", "Distillation", "Early exit", "Speed-up, decoding", "Speed-up, actions",
        "Actions/s",
    ]  # fmt: skip
    assert [line[:3] for line in found[2:]] == [
        ["no", "none", "no"],
        ["Jacobi", "none", "no"],
        ["Jacobi", "autoregressive only", "no"],
        ["Jacobi", "consistency", "no"],
        ["Jacobi", "consistency", "sigma 0.5"],
    ]
    base, last = found[2], found[-1]
    assert base[3:11] == ["1.00x", "1.00x", "200", "60.00", "1.0", "750", "1000", "1500"]
    assert base[11:] == ["4/4 100.0%", "51.0% to 100.0%", ""]
    # 120 tokens in 15 ms against 120 ms; 15 ms a query against 50.
    assert last[3:8] == ["8.00x", "3.33x", "667", "2.00", "30.0"]
    assert last[11] == "3/4 75.0%" and last[13].startswith("-25.0 (")
    thresholds = [cells(line) for line in second.splitlines()]
    assert [line[0] for line in thresholds] == ["Threshold", "-" * 11, "sigma = 0.7", "sigma = 0.5"]
    assert thresholds[3][1:] == last[3:]


def test_the_file_holds_every_episode_and_observation() -> None:
    written = json.loads(json.dumps(to_json(rows(), {"machine": "m"}, 10)))
    assert written["measured_with"] == {"machine": "m"}
    last = written["rows"][-1]
    assert last["distillation"] == "consistency" and last["decoder"]["sigma"] == 0.7
    assert last["success"]["successes"] == 4 and last["points_over_first"]["difference"] == 0
    assert last["speed_up_decoding"] == 5.0 and last["actions_per_second"] == 1e4 / 18
    assert last["tokens_per_second"] == {"least": 3750.0, "mean": 5000.0, "most": 7500.0}
    assert last["observations"]["passes"] == [3, 3]
    assert [(each["seed"], each["success"]) for each in written["rows"][2]["episodes"]] == [
        (100, True), (101, True), (102, False), (103, False)
    ]  # fmt: skip
