"""The demo as a user runs it, with a small policy: it drives the arm, reports, and ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")
pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

PATIENCE = 120.0
SIZES = {
    "dim_model": 64,
    "heads": 4,
    "feedforward": 64,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "chunk_size": 30,
}
TEXT_ENCODER = {
    "text_config.d_model": 32,
    "text_config.d_kv": 8,
    "text_config.d_ff": 32,
    "text_config.num_layers": 1,
    "text_config.num_heads": 2,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "impact"
    cameras = (Camera("front", 64, 96), Camera("wrist", 64, 96))
    make_checkpoint("impact", folder, Options(cameras=cameras, sizes=SIZES, settings=TEXT_ENCODER))
    return folder


def command(checkpoint: Path, out: Path, *options: str) -> list[str]:
    base = [
        sys.executable,
        "-m",
        "vla_simd_ros.cli.__main__",
        "demo",
        "--checkpoint",
        str(checkpoint),
        "--out",
        str(out),
    ]
    return [*base, *options]


def run(checkpoint: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    whole = command(checkpoint, out, *options)
    return subprocess.run(whole, capture_output=True, text=True, timeout=PATIENCE, check=False)


def children(out: Path) -> list[int]:
    """Processes whose environment carries the mark of this test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"VLA_SIMD_TEST={out}".encode() in line:
                found.append(int(entry.name))
    return found


def test_demo(checkpoint: Path, tmp_path: Path) -> None:
    done = run(checkpoint, tmp_path, "--duration", "6", "--threads", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, Any] = json.loads((tmp_path / "results.json").read_text())
    report = results["report"]
    assert report["queries"] >= 2
    assert report["epochs"] == 2
    assert report["executed_steps"] > 0
    assert report["commands"] > 0
    assert report["latency"]["query_ms"]["median"] > 0.0
    assert report["observation_age"]["median"] > 0.0
    assert report["window"] == 30
    for camera in ("front", "wrist"):
        counts = report["cameras"][camera]
        assert 0 < counts["received"] <= counts["sent"]
    recording = json.loads((tmp_path / "recording.json").read_text())
    assert [text for _, text in recording["instructions"]] == [
        "put the red cube on the left pad",
        "put the blue cube on the right pad",
    ]
    assert recording["executor"][-1]["values"]["executed_steps"] == report["executed_steps"]
    for name in ("timeline.png", "frames.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert f"so execution is {report['mode']}" in done.stdout
    supply = recording["diagnostics"]["policy_node: action supply of the policy"]
    assert supply.get("advice", "") in done.stdout, "whether it keeps up, where there were chunks enough"
    assert "query in total" in done.stdout
    assert f"impact from {checkpoint}" in done.stdout


def test_typed_lines_become_instructions(checkpoint: Path, tmp_path: Path) -> None:
    """Lines are sent when the demo asks for them, so that no machine is too slow for them."""
    process = subprocess.Popen(
        command(checkpoint, tmp_path, "--typed", "--duration", "4", "--threads", "1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if "type another instruction" in line:
                process.stdin.write("\nlift the \x1b[A lid\n" + "x" * 5000 + "\nopen the drawer\n")
                process.stdin.close()
        assert process.wait() == 0, "".join(said)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    told = "".join(said)
    assert "typed line is no instruction: it is empty" in told
    assert "has characters that cannot be printed" in told
    assert "it has 5000 characters, expected at most" in told
    assert "typed instruction: 'open the drawer'" in told
    recording = json.loads((tmp_path / "recording.json").read_text())
    # The one that was planned for half-way is not given any more.
    assert [text for _, text in recording["instructions"]] == [
        "put the red cube on the left pad",
        "open the drawer",
    ]


def test_a_hybrid_policy_has_two_executors(checkpoint: Path, tmp_path: Path) -> None:
    done = run(checkpoint, tmp_path, "--hybrid", "--duration", "1", "--instruction", "go", "--threads", "1")
    # Whether rows were in time to be executed is the machine's affair; the status says what the text says.
    assert done.returncode == int("FAILED" in done.stdout), done.stdout + done.stderr
    assert "cut after" in done.stdout and "frames of" in done.stdout, done.stdout + done.stderr
    assert json.loads((tmp_path / "results.json").read_text())["report"]["queries"] >= 1


def test_a_study_of_delays(checkpoint: Path, tmp_path: Path) -> None:
    options = ("--delay-study", "300", "--duration", "2", "--threads", "1", "--param", "policy_node.window=8")
    done = run(checkpoint, tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "delay_study.json").read_text())["rows"]
    # A chunk is 9 steps late when it has 8 rows: not one of them is executed.
    assert row["window"] == 8
    assert row["measured"]["executed"] == 0
    assert row["predicted"]["starved_share"]["low"] == pytest.approx(1.0)
    assert row["on_ticks"]["starved_share"] == pytest.approx(1.0)
    assert (tmp_path / "delay_study.png").read_bytes().startswith(b"\x89PNG")
    assert "300 ms" in done.stdout


def test_a_soak_tells_of_every_node(checkpoint: Path, tmp_path: Path) -> None:
    done = run(checkpoint, tmp_path, "--soak", "0.1", "--threads", "1")
    report = json.loads((tmp_path / "soak_study.json").read_text())["report"]
    assert report["control_steps"] > 100
    assert report["chunks_published"] > 0
    assert len(report["samples"]) == 2
    assert all(used["resident"] > 10 << 20 for used in report["samples"][-1]["nodes"].values())
    # Whether the bounds are kept is the machine's affair; the status says what the text says.
    assert done.returncode == int("FAILED" in done.stdout)


def test_a_node_that_dies_is_named_and_the_others_are_ended(checkpoint: Path, tmp_path: Path) -> None:
    done = run(checkpoint, tmp_path, "--param", "robot_sim_node.renderer=vulkan")
    assert done.returncode == 1
    assert "robot_sim_node ended with status 1" in done.stderr
    assert "renderer: got 'vulkan', expected one of auto, egl, opencv" in done.stderr


def test_a_node_that_cannot_be_configured_is_named_with_its_reason(checkpoint: Path, tmp_path: Path) -> None:
    done = run(checkpoint, tmp_path, "--param", "policy_node.window=31")
    assert done.returncode == 1
    assert "policy_node could not configure" in done.stderr
    assert "window: got 31, expected at most the chunk size, 30" in done.stderr


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere", tmp_path)
    assert done.returncode == 2
    assert "nowhere: no such folder" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_ends_all_processes(checkpoint: Path, tmp_path: Path, number: int) -> None:
    process = subprocess.Popen(
        command(checkpoint, tmp_path, "--duration", "600"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "VLA_SIMD_TEST": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "running for" in line:
            break
    assert len(children(tmp_path)) >= 4
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE) == 130
    process.stdout.close()
    end = time.monotonic() + 5.0
    while children(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert not children(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--param", "robot.renderer=egl"], "expected NODE.NAME=VALUE with NODE one of robot_sim_node"),
        (["--duration", "0"], "expected 1 to 86400 seconds"),
        (["--mode", "eager"], "lagged"),
    ],
)
def test_bad_options(checkpoint: Path, tmp_path: Path, options: list[str], message: str) -> None:
    done = run(checkpoint, tmp_path, *options)
    assert done.returncode == 2
    assert message in done.stderr
