"""`vla_simd evaluate` as a user runs it, with small random policies and hardly any time for an episode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli import evaluate_cmd
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.through_nodes import NodeRequest

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

SIZES = {"dim_model": 32, "heads": 2, "feedforward": 32, "chunk_size": 8, "encoder_layers": 1}
SHORT = ("--seconds", "0.2", "--threads", "1")


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "act"
    cameras = (Camera("front", 32, 48), Camera("wrist", 32, 48))
    make_checkpoint("act", folder, Options(cameras=cameras, sizes=SIZES))
    return folder


def evaluated(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    status = main(["evaluate", *options])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def conditions(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["conditions"])


def test_combinations_run_the_same_episodes(
    act: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    lists = ("--precision", "fp32,int8", "--mode", "lagged,synchronous", "--horizon", "4", "--delays", "50")
    status, out, err = evaluated(capsys, str(act), "--episodes", "2", *SHORT, *lists, "--json", str(file))
    assert status == 0, err
    found = conditions(file)
    assert [each["name"] for each in found] == [
        "fp32, lagged",
        "fp32, synchronous",
        "int8, lagged",
        "int8, synchronous",
    ]
    seeds = [[episode["seed"] for episode in each["episodes"]] for each in found]
    assert seeds == [[1_000_000, 1_000_001]] * 4
    # 50 ms are one and a half control steps: the first row comes with the third of six.
    assert [each["episodes"][0]["executed_rows"] for each in found] == [4] * 4
    assert all(each["settings"]["execution"]["horizon"] == 4 for each in found)
    assert "| int8, synchronous |       0/2 |" in out
    assert "not within 6 steps" in out


def test_decoders_are_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "tokens", tmp_path / "results.json"
    cameras = (Camera("front", 32, 48), Camera("wrist", 32, 48))
    text = {f"text_config.{name}": 8 for name in ("d_model", "d_kv", "d_ff", "num_heads", "num_layers")}
    sizes = {**SIZES, "chunk_size": 2}
    make_checkpoint(
        "impact_tokens", folder, Options(cameras=cameras, sizes=sizes, settings={**text, "backbone_width": 4})
    )
    decoders = ("--decoder", "autoregressive,early_exit", "--sigma", "0.4,0.6", "--delays", "0")
    status, out, err = evaluated(
        capsys, str(folder), "--episodes", "1", *SHORT, *decoders, "--json", str(file)
    )
    assert status == 0, err
    found = conditions(file)
    names = ["autoregressive", "early_exit, sigma 0.4", "early_exit, sigma 0.6"]
    assert [each["name"] for each in found] == names
    decodings = [each["episodes"][0]["decoding"] for each in found]
    queries = found[0]["episodes"][0]["queries"]
    assert decodings[0]["passes"] == decodings[0]["tokens"] == 12 * queries
    assert all(each["passes"] < each["tokens"] for each in decodings[1:])
    assert "Tokens a pass" in out


def test_two_checkpoints_and_shuffled_instructions(
    act: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, file = tmp_path / "other", tmp_path / "results.json"
    other.symlink_to(act)
    options = ("--episodes", "2", "--shuffle", "only", "--seed", "5", "--delays", "measured", "--gif")
    status, _, err = evaluated(
        capsys, str(act), str(other), *SHORT, *options, str(tmp_path), "--json", str(file)
    )
    assert status == 0, err
    found = conditions(file)
    assert [each["name"] for each in found] == ["act", "other"]
    assert [episode["seed"] for episode in found[0]["episodes"]] == [5, 6]
    assert all(episode["instruction"] != episode["original"] for episode in found[1]["episodes"])
    assert len(list(tmp_path.glob("*-shuffled-failure*.gif"))) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no checkpoint is given, expected a checkpoint or --expert"),
        (("somewhere", "--expert"), "both a checkpoint and --expert are given"),
        (("--expert", "--env", "moon"), "world 'moon' is unknown, expected one of task, libero-spatial"),
        (("--expert", "--env", "libero-goal"), "the expert knows no other world"),
        (("--expert", "--episodes", "0"), "0 episodes, expected at least 1"),
        (("--expert", "--instruction", "dance"), "instruction 'dance' is unknown here"),
        (("--expert", "--mode", "eager"), "mode 'eager' is unknown"),
        (("--expert", "--horizon", "few"), "horizon 'few': expected whole numbers of rows"),
        (("--expert", "--delays", "0,soon"), "delay 'soon': expected milliseconds"),
        (("--expert", "--precision", "fp64"), "precision 'fp64' is unknown, expected fp32 or int8"),
        (("--expert", "--decoder", "greedy"), "decoder 'greedy' is unknown, expected one of autoregressive"),
        (("--expert", "--decoder", "early_exit", "--sigma", "0.4,high"), "sigma is 'high', expected a prob"),
        (("--expert", "--json", "/nowhere/a.json"), "there is no folder /nowhere"),
        (("/nowhere/at/all",), "/nowhere/at/all: no such folder"),
    ],
)
def test_what_cannot_be_evaluated(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = evaluated(capsys, *options)
    assert status == 2
    assert message in err


def test_a_policy_of_another_robot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_checkpoint("act", tmp_path / "act", Options(cameras=(Camera("top", 32, 48),), sizes=SIZES))
    status, _, err = evaluated(capsys, str(tmp_path / "act"))
    assert status == 2
    assert "looks through cameras top; the simulated robot has front, wrist" in err


def test_a_horizon_beyond_the_chunk(act: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = evaluated(capsys, str(act), "--horizon", "9")
    assert status == 2
    assert "horizon is 9 rows, expected at most the policy's chunk, 8" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gif", "films"), "--ros makes no animations"),
        (("--delays", "150"), "delay 150 ms: a query through the nodes takes what it takes"),
        (("--env", "libero-goal"), "the nodes run a checkpoint in the world 'task' alone"),
    ],
)
def test_what_the_nodes_cannot_evaluate(
    act: Path,
    options: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evaluate_cmd, "require", lambda *modules: None)
    status, _, err = evaluated(capsys, str(act), "--ros", *options)
    assert status == 2
    assert message in err


def test_the_process_of_the_nodes_gets_the_request(
    act: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(evaluate_cmd, "require", lambda *modules: None)
    monkeypatch.setattr(evaluate_cmd, "become", lambda *given: sent.append(given) or 0)
    options = ("--episodes", "4", "--mode", "lagged", "--delays", "measured+30", "--threads", "1")
    status, _, _ = evaluated(capsys, str(act), "--ros", *options, "--logs", str(tmp_path))
    assert status == 0
    ((module, text),) = sent
    asked = NodeRequest.from_json(text)
    assert module == "evaluation_main"
    assert (asked.width, asked.height, asked.out, asked.results) == (48, 32, str(tmp_path), "")
    assert asked.request.executions == (Execution("lagged", delay=Delay(30.0, measured=True)),)
    assert (asked.request.episodes, asked.request.changes) == (4, {"threads": 1})
