"""The report of a recorded run: both kinds of storage, both kinds of file, and every bad recording."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.recording.bag import Bag, BagError
from vla_simd_ros.recording.run import read_run


def slow_once(number: int) -> float:
    return 500.0 if number == 12 else 100.0


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_recording_is_read_whole(scene: Any, tmp_path: Path, storage: str) -> None:
    made = scene()
    run = read_run(made.write(tmp_path / "bag", storage))
    recording = run.recording
    assert recording.joint_names == ["pan", "lift"]
    assert [chunk.sequence for chunk in recording.chunks] == [number for number, *_ in made.chunks]
    assert len(recording.timings) == len(recording.chunks) == len(recording.budgets)
    assert len(run.frames["/camera/front/image_raw"]) == 122
    assert recording.commands[3].positions == pytest.approx(
        [np.sin(recording.seconds(recording.commands[3].time) / 0.5), recording.commands[3].positions[1]]
    )
    assert all(abs(each.budget.unaccounted_ms) < 1e-6 for each in recording.budgets)
    assert [text for _, text in recording.instructions] == ["pick <it> up"]


def test_how_tokens_were_decoded_is_read(bag_maker: Any, tmp_path: Path) -> None:
    for number, fields in enumerate(
        (
            {},
            {
                "passes": 5,
                "tokens": 48,
                "fixed_per_pass": 9.6,
                "exit": 3,
                "exact": True,
                "min_tokens_per_second": 80.0,
            },
        )
    ):
        bag_maker.add("/query_timing", "vla_simd_ros/msg/QueryTiming", 10**18 + number, epoch=1, **fields)
    bag_maker.add("/executor_state", "vla_simd_ros/msg/ExecutorState", 10**18, stamp=10**18)
    without, found = (
        timing.decoding for timing in read_run(bag_maker.write(tmp_path / "bag")).recording.timings
    )
    assert without is None and found is not None
    assert (found.passes, found.tokens, found.exit, found.exact) == (5, 48, "fixed_point", True)
    assert (found.fixed_per_pass, found.min_tokens_per_second) == (9.6, 80.0)


def test_one_html_file_with_the_picture_in_it(
    scene: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = scene(query_ms=slow_once).write(tmp_path / "bag")
    out = tmp_path / "new" / "report.html"
    assert main(["report", str(bag), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "starvation: 1 x engine slow" in printed and "capture to command, measured" in printed
    page = out.read_text()
    assert "the query of chunk 12 took 400 ms longer than usual" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    encoded = re.search(r"base64,([^\"]+)", page)
    assert encoded is not None
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(encoded[1]), np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape[0] > 1000 and picture.std() > 5.0


def test_without_states_nobody_knows_whether_rows_ran_out(
    scene: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = scene(query_ms=slow_once, without=("/executor_state",)).write(tmp_path / "bag")
    out = tmp_path / "report.html"
    assert main(["report", str(bag), "--out", str(out)]) == 0
    assert "starvation: unknown, executor_state was not recorded" in capsys.readouterr().out
    assert "Unknown, executor_state was not recorded." in out.read_text()


def test_a_picture(scene: Any, tmp_path: Path) -> None:
    out = tmp_path / "run.png"
    assert main(["report", str(scene().write(tmp_path / "bag", "sqlite3")), "--out", str(out)]) == 0
    assert cv2.imread(str(out)).shape[1] > 1200


def test_a_recording_of_the_executor_alone_is_reported(bag_maker: Any, tmp_path: Path) -> None:
    for step in range(3):
        bag_maker.add(
            "/robot/executor_state", "vla_simd_ros/msg/ExecutorState", 10**18 + step, stamp=10**18 + step
        )
    bag = bag_maker.write(tmp_path / "bag")
    assert main(["report", str(bag), "--out", str(tmp_path / "a.html")]) == 0


@pytest.mark.parametrize(
    ("topic", "kind", "values"),
    [
        ("/commands", "std_msgs/msg/Float64MultiArray", {"data": [0.5, -2.0]}),
        ("/joint_command", "sensor_msgs/msg/JointState",
         {"name": ["angular_z", "linear_x"], "position": [-2.0, 0.5]}),
        ("/twist", "geometry_msgs/msg/TwistStamped",
         {"twist": {"linear": {"x": 0.5, "y": 9.0}, "angular": {"z": -2.0}}}),
        ("/joint_trajectory", "trajectory_msgs/msg/JointTrajectory",
         {"joint_names": ["linear_x", "angular_z"], "points": [{"positions": [0.5, -2.0]}]}),
    ],
)  # fmt: skip
def test_commands_of_every_kind_are_read_by_the_names_of_the_actions(
    bag_maker: Any, tmp_path: Path, topic: str, kind: str, values: dict[str, Any]
) -> None:
    now = 10**18
    bag_maker.add(
        "/action_chunk",
        "vla_simd_ros/msg/ActionChunk",
        now,
        action_names=["linear_x", "angular_z"],
        step_period=0.1,
    )
    bag_maker.add(topic, kind, now + 5, **values)
    (command,) = read_run(bag_maker.write(tmp_path / "bag")).recording.commands
    assert command.positions == [0.5, -2.0] and command.time == now + 5


def test_a_single_file_is_a_recording_too(scene: Any, tmp_path: Path) -> None:
    folder = scene().write(tmp_path / "bag")
    (file,) = folder.glob("*.mcap")
    assert read_run(file).recording.chunks


def test_several_robots_are_told_apart_by_namespace(bag_maker: Any, tmp_path: Path) -> None:
    for name, window in (("left", 5), ("right", 7)):
        bag_maker.add(
            f"/{name}/action_chunk", "vla_simd_ros/msg/ActionChunk", 10**18, stamp=10**18 - 5, window=window
        )
    bag = bag_maker.write(tmp_path / "bag")
    with pytest.raises(BagError, match="is on /left/action_chunk, /right/action_chunk, expected one topic"):
        read_run(bag)
    assert read_run(bag, "right").recording.chunks[0].window == 7


def message_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a failing report says."""
    assert main(["report", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such recording" in message_of(capsys, str(tmp_path / "nowhere"))
    assert "a folder without metadata.yaml" in message_of(capsys, str(tmp_path))
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    assert "expected the folder of a rosbag2 recording, or a file .mcap or .db3" in message_of(
        capsys, str(text)
    )
    fake = tmp_path / "fake.mcap"
    fake.write_bytes(b"hello, this is no recording at all, but long enough to look into")
    assert "is not a recording that can be read" in message_of(capsys, str(fake))


def test_a_recording_without_our_topics(
    bag_maker: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag_maker.add("/chatter", "std_msgs/msg/String", 10**18, data="hello")
    line = message_of(capsys, str(bag_maker.write(tmp_path / "bag")))
    assert "holds neither vla_simd_ros/msg/ActionChunk nor" in line and "It has /chatter" in line


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.95])
def test_a_truncated_recording(
    scene: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], storage: str, share: float
) -> None:
    folder = scene().write(tmp_path / "bag", storage)
    (file,) = (path for path in folder.iterdir() if path.suffix in (".mcap", ".db3"))
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    line = message_of(capsys, str(folder))
    assert str(folder) in line and ("is damaged" in line or "is not a recording that can be read" in line)


def test_a_recording_of_another_version(
    bag_maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vla_simd_ros import package_files
    from vla_simd_ros.recording import bag as module

    bag_maker.add("/epoch", "std_msgs/msg/UInt64", 10**18)
    bag_maker.add("/query_timing", "vla_simd_ros/msg/QueryTiming", 10**18)
    path = bag_maker.write(tmp_path / "bag")
    newer = shutil.copytree(package_files.package_folder("msg"), tmp_path / "msg")
    with (newer / "QueryTiming.msg").open("a") as file:
        file.write("float64 another_ms\n")
    monkeypatch.setattr(module, "package_folder", lambda name: tmp_path / name)
    with (
        pytest.raises(BagError, match=r"another version of vla_simd_ros: .*QueryTiming lacks another_ms"),
        Bag(path),
    ):
        pass


def test_another_kind_of_file_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = message_of(capsys, str(tmp_path / "nowhere"), "--out", "report.pdf")
    assert "report.pdf: expected a file that ends with .html or .png" in line
