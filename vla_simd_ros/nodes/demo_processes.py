"""The demo's node processes: started together, watched, and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from vla_simd_ros.nodes.parent_death import end_with_parent

_LOG_LINES = 15
_PATIENCE = (4.0, 2.0)
"""Seconds given after SIGINT, and after SIGTERM, before the next harder signal."""


class ProcessError(RuntimeError):
    """A process ended on its own; the message names it and ends with the last lines of its log."""


@dataclass(frozen=True)
class Usage:
    """What a process has used: seconds of CPU since its start, and bytes of memory that are resident."""

    cpu_s: float
    resident: int


class ProcessGroup:
    """Processes with a log file each. Leaving its `with` block ends them all."""

    def __init__(self, log_folder: Path, environment: Mapping[str, str]) -> None:
        self._logs = log_folder
        self._environment = dict(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> ProcessGroup:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str]) -> None:
        """Starts a process in a session of its own, so that Ctrl-C reaches it only by way of `stop`.

        It gets SIGINT when this process is killed: nodes without their demo would run on unseen.
        """
        with self.log_path(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*end_with_parent(), *command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log_path(self, name: str) -> Path:
        """Where everything that a process prints goes."""
        return self._logs / f"{name}.log"

    def last_lines(self, name: str) -> str:
        """The end of a process's log, indented."""
        text = self.log_path(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"    {line}" for line in text.splitlines()[-_LOG_LINES:]) or "    (nothing logged)"

    def usage(self, name: str) -> Usage:
        """What a process has used until now. Raises ProcessError when it has ended."""
        process = Path("/proc") / str(self._processes[name].pid)
        try:
            # The name, in parentheses, may hold spaces; user and system time are fields 14 and 15.
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            pages = int((process / "statm").read_text().split()[1])
        except (OSError, IndexError):
            self.check()
            raise
        ticks = int(fields[11]) + int(fields[12])
        return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))

    def check(self) -> None:
        """Raises ProcessError when one of the processes has ended."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
                raise ProcessError(
                    f"{name} {how}; the end of {self.log_path(name)}:\n{self.last_lines(name)}"
                )

    def stop(self) -> list[str]:
        """Ends all processes, with SIGINT first; the names of those that had to be killed."""
        for number, patience in zip((signal.SIGINT, signal.SIGTERM), _PATIENCE, strict=True):
            for process in self._running().values():
                process.send_signal(number)
            end = time.monotonic() + patience
            while self._running() and time.monotonic() < end:
                time.sleep(0.02)
        stubborn = self._running()
        for process in stubborn.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        return list(stubborn)

    def _running(self) -> dict[str, subprocess.Popen[bytes]]:
        return {name: process for name, process in self._processes.items() if process.poll() is None}


def _signal_name(number: int) -> str:
    return signal.Signals(number).name
