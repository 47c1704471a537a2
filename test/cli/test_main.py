from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vla_simd_ros import __version__
from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.cli import __main__ as cli


def install(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    """Make ``vla_simd check`` run ``run``."""

    def add_parser(commands: Any) -> None:
        commands.add_parser("check").add_argument("--value", type=int, default=0)

    monkeypatch.setattr(cli, "_load", lambda module: SimpleNamespace(add_parser=add_parser, run=run))


def raising(error: BaseException) -> Any:
    def run(args: Any) -> int:
        raise error

    return run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"vla_simd {__version__}\n"


def test_help_lists_the_commands_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import sys\n"
        "from vla_simd_ros.cli.__main__ import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "print(sorted(m for m in sys.modules if m.endswith('_cmd') or m in ('numpy', 'torch')))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    for command in ("inspect", "check", "make-checkpoint", "bench", "demo"):
        assert command in out
    assert out.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["check", "make-checkpoint"])
def test_help_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])

    assert ended.value.code == 0
    assert f"usage: vla_simd {command}" in capsys.readouterr().out


def test_runs_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda args: args.value)

    assert cli.main(["check", "--value", "1"]) == 1


@pytest.mark.parametrize("arguments", [[], ["dance"], ["check", "--nope"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)

    assert ended.value.code == 2
    assert "usage: vla_simd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (CheckpointError("config.json: no such file"), "config.json: no such file"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError("Unable to allocate 6 TiB"), "not enough memory: Unable to allocate 6 TiB"),
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            "this command needs 'torch', which is not installed: pip install 'vla_simd_ros[training]'",
        ),
        (
            ModuleNotFoundError("No module named 'mujoco.gl'", name="mujoco.gl"),
            "this command needs 'mujoco', which is not installed: pip install 'vla_simd_ros[sim]'",
        ),
        (
            ModuleNotFoundError("no engine", name="vla_simd_ros._engine"),
            "the engine is not built; build it with: pip install .",
        ),
        (ModuleNotFoundError("no numpy", name="numpy"), "'numpy' is not installed: pip install numpy"),
        (
            ModuleNotFoundError("no OpenCV", name="cv2"),
            "'cv2' is not installed: pip install opencv-python-headless",
        ),
    ],
)
def test_known_failures_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, sentence: str
) -> None:
    install(monkeypatch, raising(error))

    assert cli.main(["check"]) == 2
    assert capsys.readouterr().err == f"vla_simd: {sentence}\n"


@pytest.mark.parametrize("error", [ValueError("ours"), ModuleNotFoundError("typo", name="vla_simd_ros.tpyo")])
def test_faults_of_ours_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    install(monkeypatch, raising(error))

    with pytest.raises(type(error)):
        cli.main(["check"])


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, raising(KeyboardInterrupt()))

    assert cli.main(["check"]) == 130


def test_reader_that_went_away() -> None:
    command = f"{sys.executable} -m vla_simd_ros.cli make-checkpoint --help | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )

    assert "Traceback" not in done.stderr
