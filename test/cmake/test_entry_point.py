"""The executables that are installed: an interrupt ends them from their first moment on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parents[2] / "cmake" / "entry_point.py.in"
PATIENCE_S = 60.0

# A module in whose loading exceptions get lost, as where they are raised in a callback of native code.
LOSING = """
import time
while True:
    try:
        print("LOADING", flush=True)
        time.sleep(600)
    except BaseException:
        pass
"""

HEEDING = """
import time
def main():
    try:
        print("RUNNING", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        return 7
"""


@pytest.mark.parametrize(
    ("module", "says", "status"), [(LOSING, "LOADING", -signal.SIGINT), (HEEDING, "RUNNING", 7)]
)
def test_an_interrupt_ends_it_while_modules_are_loaded_and_afterwards(
    tmp_path: Path, module: str, says: str, status: int
) -> None:
    (tmp_path / "made_up.py").write_text(module)
    script = tmp_path / "made_up_node"
    script.write_text(TEMPLATE.read_text().replace("@module@", "made_up").replace("@name@", "made_up_node"))
    # A process that is started in the background of a script may ignore interrupts: not this one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{says}\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == status
    finally:
        process.kill()
        process.wait()
