"""Child processes of the demo: watched, explained when they die, always ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vla_simd_ros.nodes import demo_processes
from vla_simd_ros.nodes.demo_processes import ProcessError, ProcessGroup

PATIENCE = 20.0
SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time\n"
    "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
    "print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ProcessGroup]:
    with ProcessGroup(tmp_path / "logs", os.environ) as made:
        yield made


def start(group: ProcessGroup, name: str, program: str) -> None:
    group.start(name, [sys.executable, "-c", program])


def wait_for_text(group: ProcessGroup, name: str, text: str) -> None:
    end = time.monotonic() + PATIENCE
    while text not in group.last_lines(name):
        assert time.monotonic() < end, f"{name} did not say {text!r}"
        time.sleep(0.02)


def wait_for_death(group: ProcessGroup) -> ProcessError:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            group.check()
        except ProcessError as error:
            return error
        time.sleep(0.02)
    pytest.fail("no process died")


def test_usage_is_of_the_process_itself(group: ProcessGroup) -> None:
    start(group, "worker", "x = bytearray(64 << 20); sum(range(3_000_000));" + SLEEPER)
    wait_for_text(group, "worker", "ready")
    used = group.usage("worker")
    assert used.cpu_s > 0.0
    assert used.resident > 64 << 20


def test_usage_of_a_process_that_has_ended(group: ProcessGroup) -> None:
    start(group, "worker", "pass")
    wait_for_death(group)
    with pytest.raises(ProcessError, match="worker ended with status 0"):
        group.usage("worker")


def test_living_processes_pass_the_check(group: ProcessGroup) -> None:
    start(group, "worker", SLEEPER)
    wait_for_text(group, "worker", "ready")
    group.check()
    assert group.stop() == []


def test_a_dead_process_is_named_with_the_end_of_its_log(group: ProcessGroup) -> None:
    start(group, "healthy", SLEEPER)
    start(group, "broken", "import sys; print('first'); sys.exit('no such camera')")
    message = str(wait_for_death(group))
    assert message.startswith("broken ended with status 1; the end of ")
    assert "broken.log" in message
    assert "no such camera" in message
    assert "healthy" not in message


def test_a_killed_process_is_named_with_its_signal(group: ProcessGroup) -> None:
    start(group, "victim", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert str(wait_for_death(group)).startswith("victim was ended by SIGSEGV; ")


def test_only_the_end_of_a_long_log_is_shown(group: ProcessGroup) -> None:
    start(group, "chatty", "for number in range(1000): print('line', number)")
    wait_for_death(group)
    lines = group.last_lines("chatty").splitlines()
    assert len(lines) <= 20
    assert lines[-1].strip() == "line 999"


def test_the_environment_reaches_the_process(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path, {**os.environ, "ROS_DOMAIN_ID": "57"}) as group:
        start(group, "reader", "import os; print('domain', os.environ['ROS_DOMAIN_ID'])")
        wait_for_text(group, "reader", "domain 57")


def test_leaving_the_block_ends_everything_even_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), ProcessGroup(tmp_path, os.environ) as group:
        start(group, "worker", "import os; print('pid', os.getpid(), flush=True)\n" + SLEEPER)
        wait_for_text(group, "worker", "ready")
        number = int(group.last_lines("worker").split()[1])
        raise RuntimeError("boom")
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_process_that_ignores_signals_is_killed(
    group: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_processes, "_PATIENCE", (0.1, 0.1))
    start(group, "stubborn", STUBBORN)
    wait_for_text(group, "stubborn", "ready")
    assert group.stop() == ["stubborn"]


def runs(process: Path) -> bool:
    """Whether a process, named by its folder in /proc, has not ended."""
    try:
        return "Z" not in (process / "stat").read_text().split()[2]
    except (FileNotFoundError, ProcessLookupError):  # gone, perhaps between opening and reading
        return False


def test_a_killed_parent_takes_its_processes_along(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time\n"
        "from vla_simd_ros.nodes.demo_processes import ProcessGroup\n"
        "group = ProcessGroup(pathlib.Path(sys.argv[1]), os.environ).__enter__()\n"
        f"group.start('child', [sys.executable, '-c', {SLEEPER!r}])\n"
        "print(group._processes['child'].pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = Path("/proc", parent.stdout.readline().strip())
    log, end = tmp_path / "child.log", time.monotonic() + PATIENCE
    while not (log.exists() and "ready" in log.read_text()):
        assert time.monotonic() < end, "the child did not start"
        time.sleep(0.02)
    parent.kill()
    parent.communicate()
    while runs(child):
        assert time.monotonic() < end, "the child runs on"
        time.sleep(0.02)
