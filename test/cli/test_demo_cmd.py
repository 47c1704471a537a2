"""What `vla_simd demo` hands to the process that runs the demo, and what it refuses; no ROS needed."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_diffusion import SETTINGS as DIFFUSION
from small_diffusion import SIZES as DIFFUSION_SIZES

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli import demo_cmd
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.cli.node_process import NodesUnavailable
from vla_simd_ros.sim.demo_policy import FULL_SIZE, POLICIES, TRAINED
from vla_simd_ros.sim.tasks import INSTRUCTIONS

SMALL = {"dim_model": 32, "heads": 2, "feedforward": 32, "chunk_size": 8, "encoder_layers": 1}


class Started(Exception):
    """Stands for the moment at which the command becomes another process."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "act"
    make_checkpoint("act", folder, Options(cameras=(Camera("front", 64, 96),), sizes=SMALL))
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def start(program: str, command: list[str]) -> None:
        assert program == sys.executable
        commands.append(command)
        raise Started

    monkeypatch.setattr(os, "execv", start)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name != "ament_index_python" else None
    )
    return commands


def settings(started: list[list[str]], *options: str) -> dict[str, Any]:
    with pytest.raises(Started):
        demo_cmd.run(_parsed(*options))
    assert started[-1][1:3] == ["-m", "vla_simd_ros.nodes.demo_main"]
    return dict(json.loads(started[-1][3]))


def _parsed(*options: str) -> Any:
    import argparse

    parser = argparse.ArgumentParser()
    demo_cmd.add_parser(parser.add_subparsers())
    return parser.parse_args(["demo", *options])


def test_a_checkpoint_sets_the_size_of_the_pictures(started: list[list[str]], checkpoint: Path) -> None:
    made = settings(started, "--checkpoint", str(checkpoint))
    assert made["parameters"]["robot_sim_node"] == {"image_width": "96", "image_height": "64"}
    assert made["parameters"]["policy_node"] == {"checkpoint": str(checkpoint)}
    assert made["parameters"]["chunk_executor_node"] == {}
    assert made["duration"] == 60.0
    assert len(made["instructions"]) == 2
    assert made["note"] == f"act from {checkpoint}"
    assert Path(made["config"], "robot_sim.yaml").is_file()


def test_options_become_parameters(started: list[list[str]], checkpoint: Path, tmp_path: Path) -> None:
    made = settings(
        started,
        *("--checkpoint", str(checkpoint), "--mode", "lagged", "--threads", "2", "--control-rate", "50"),
        *("--param", "chunk_executor_node.velocity_limit=[1.0]", "--param", "policy_node.window=4"),
        *("--instruction", "stack the cubes", "--duration", "5", "--out", str(tmp_path)),
    )
    assert made["parameters"]["policy_node"] == {
        "checkpoint": str(checkpoint),
        "threads": "2",
        "window": "4",
    }
    assert made["parameters"]["chunk_executor_node"] == {
        "mode": "lagged",
        "control_rate": "50.0",
        "velocity_limit": "[1.0]",
    }
    assert made["instructions"] == ["stack the cubes"]
    assert made["out"] == str(tmp_path)


def test_a_hybrid_policy_has_two_executors_and_the_threads_are_the_second_ones(
    started: list[list[str]], checkpoint: Path
) -> None:
    made = settings(started, "--checkpoint", str(checkpoint), "--hybrid", "--threads", "2")
    assert made["hybrid"] is True
    assert made["parameters"]["policy_node"] == {"checkpoint": str(checkpoint), "suffix_threads": "2"}
    assert settings(started, "--checkpoint", str(checkpoint))["hybrid"] is False


def test_without_a_checkpoint_the_trained_one_runs(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    made = settings(started, "--param", "policy_node.query_threshold=2")
    assert made["parameters"]["policy_node"] == {"checkpoint": str(TRAINED), "query_threshold": "2"}
    assert made["parameters"]["robot_sim_node"] == {"image_width": "128", "image_height": "96"}
    assert set(made["instructions"]) < set(INSTRUCTIONS)
    assert "untrained" not in made["note"] and made["note"] in capsys.readouterr().out


def test_lines_are_read_from_a_terminal_or_on_request(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda terminal=terminal: terminal))
        assert settings(started)["typed"] is terminal
        assert settings(started, "--typed")["typed"] is True
        assert settings(started, "--no-typed")["typed"] is False
    with pytest.raises(demo_cmd.DemoUnavailable, match="--typed is for a run of one policy"):
        demo_cmd.run(_parsed("--typed", "--soak"))


def test_a_random_policy_is_said_to_be_untrained(
    started: list[list[str]],
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo_cmd, "random_checkpoint", lambda say, policy, small: checkpoint)
    made = settings(started, "--policy", "act")
    assert "untrained" in made["note"]
    assert "untrained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--full"], ("impact", False)),
        (["--soak"], ("impact", True)),
        (["--hybrid"], ("impact", False)),
        (["--small"], ("impact", True)),
        (["--policy", "act"], ("act", False)),
        (["--policy", "act", "--soak"], ("act", True)),
        (["--policy", "act", "--soak", "--full"], ("act", False)),
        *((["--policy", policy], (policy, True)) for policy in POLICIES if policy not in FULL_SIZE),
        *((["--policy", policy, "--full"], (policy, False)) for policy in POLICIES),
    ],
)
def test_the_random_policy_is_of_a_kind_and_a_size(
    started: list[list[str]],
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    expected: tuple[str, bool],
) -> None:
    asked: list[tuple[str, bool]] = []

    def made(say: object, policy: str, small: bool) -> Path:
        asked.append((policy, small))
        return checkpoint

    monkeypatch.setattr(demo_cmd, "random_checkpoint", made)
    note = settings(started, *options)["note"]
    assert asked == [expected]
    assert note.startswith(f"{'small' if expected[1] else 'full-size'} random, untrained {expected[0]}")


def test_a_checkpoint_has_the_size_that_it_has(started: list[list[str]], checkpoint: Path) -> None:
    with pytest.raises(demo_cmd.DemoUnavailable, match="not for --checkpoint"):
        demo_cmd.run(_parsed("--checkpoint", str(checkpoint), "--small"))


@pytest.mark.parametrize(("choice", "profile"), [([], True), (["default"], False)])
def test_the_transport_check_becomes_another_process_and_needs_no_policy(
    started: list[list[str]], choice: list[str], profile: bool
) -> None:
    with pytest.raises(Started):
        demo_cmd.run(_parsed("--transport-check", *choice, "--duration", "5"))
    assert started[-1][1:3] == ["-m", "vla_simd_ros.nodes.transport_check"]
    wanted = json.loads(started[-1][3])
    assert (wanted["duration"], wanted["width"], wanted["height"], wanted["rate"]) == (5.0, 640, 480, 30.0)
    assert wanted["profile"] is profile


@pytest.mark.parametrize(
    ("options", "study"),
    [
        ([], {}),
        (["--delay-study", "0,250"], {"kind": "delay", "values": [0.0, 250.0]}),
        (["--horizon-study", "4"], {"kind": "horizon", "values": [4], "delay": "lognormal:200,0.2"}),
        (
            ["--horizon-study", "4", "--inject-delay", "fixed:9"],
            {"kind": "horizon", "values": [4], "delay": "fixed:9"},
        ),
        (["--pacing-study"], {"kind": "pacing"}),
        (["--verify-supply"], {"kind": "verify"}),
        (["--soak"], {"kind": "soak", "minutes": 30.0}),
        (["--soak", "3"], {"kind": "soak", "minutes": 3.0}),
    ],
)
def test_studies(
    started: list[list[str]], checkpoint: Path, options: list[str], study: dict[str, Any]
) -> None:
    made = settings(started, "--checkpoint", str(checkpoint), *options)
    assert made["study"] == study
    assert made["duration"] == (12.0 if study else 60.0)
    delay = made["parameters"]["policy_node"].get("inject_delay")
    assert delay == ("fixed:9" if "--inject-delay" in options else None)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--delay-study", "-1"], "expected 0 to 10000 milliseconds"),
        (["--horizon-study", "0,3"], "expected 1 row or more"),
        (["--soak", "0"], "expected 0.1 to 1440 minutes"),
        (["--inject-delay", "slow"], "no distribution of delays"),
        (["--soak", "--pacing-study"], "not allowed with"),
        (["--small", "--full"], "not allowed with"),
        (["--checkpoint", "somewhere", "--policy", "act"], "not allowed with"),
        (["--policy", "gpt"], "invalid choice: 'gpt'"),
    ],
)
def test_studies_that_cannot_be(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _parsed(*options)
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("rclpy", "source a ROS 2 installation"),
        ("mujoco", r"vla_simd_ros\[sim\]"),
        ("matplotlib", r"\[sim\]"),
    ],
)
def test_missing_packages_are_named_with_their_remedy(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, missing: str, remedy: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(NodesUnavailable, match=f"needs the Python package {missing}: .*{remedy}"):
        demo_cmd.run(_parsed("--checkpoint", str(checkpoint)))


def test_a_checkpoint_of_another_robot_is_one_line_of_text(
    started: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_checkpoint("act", tmp_path / "act", Options(cameras=(Camera("top", 64, 64),), sizes=SMALL))
    assert main(["demo", "--checkpoint", str(tmp_path / "act")]) == 2
    assert "looks through cameras top; the simulated robot has front, wrist" in capsys.readouterr().err
    assert not started


def test_steps_and_seed_are_for_policies_that_iterate(
    started: list[list[str]], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, words in (("--num-steps=4", "it takes no num_steps"), ("--seed=4", "draws no noise")):
        assert main(["demo", "--checkpoint", str(checkpoint), option]) == 2
        assert words in capsys.readouterr().err
    make_checkpoint(
        "diffusion",
        tmp_path / "c",
        Options(cameras=(Camera("front", 64, 96),), sizes=DIFFUSION_SIZES, settings=DIFFUSION),
    )
    found = settings(started, "--checkpoint", str(tmp_path / "c"), "--num-steps", "4", "--seed", "7")
    policy = found["parameters"]["policy_node"]
    assert (policy["num_steps"], policy["seed"]) == ("4", "7")
    assert main(["demo", "--checkpoint", str(tmp_path / "c"), "--num-steps=999"]) == 2
    assert "num_steps is 999" in capsys.readouterr().err
