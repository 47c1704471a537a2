"""Steps of the preparation: one at a time, with progress, a log, and a stamp of what they were made from."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

HEARTBEAT_SECONDS = 4.0


class PreparationError(Exception):
    """The environment cannot be prepared; the message says why and what to do."""


def say(text: str) -> None:
    print(f"[prepare] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold the preparation for this process alone; wait, audibly, while another one has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        next_word = 0.0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= next_word:
                    say("waiting for another preparation of this folder to end")
                    next_word = time.monotonic() + HEARTBEAT_SECONDS
                time.sleep(0.2)
        yield


class Stamps:
    """Remembers, per step, a digest of what the step was last made from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def current(self, step: str, digest: str) -> bool:
        path = self._folder / step
        return path.exists() and path.read_text() == digest

    def set(self, step: str, digest: str) -> None:
        (self._folder / step).write_text(digest)

    def clear(self, *steps: str) -> None:
        for step in steps:
            (self._folder / step).unlink(missing_ok=True)


def digest_of(root: Path, files: Iterable[Path], *facts: str) -> str:
    """A digest of the files' names (relative to root) and contents, and of further facts."""
    state = hashlib.sha256()
    for fact in facts:
        state.update(fact.encode() + b"\0")
    for path in sorted(files):
        state.update(str(path.relative_to(root)).encode() + b"\0")
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def run_step(
    title: str, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path, hint: str = ""
) -> None:
    """Run a command with its output in a log file, saying every few seconds how far it has come.

    Raises PreparationError with the end of the log when the command fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"{title} ...")
    start = last_word = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
        )
        try:
            while process.poll() is None:
                time.sleep(0.05)
                now = time.monotonic()
                if now - last_word >= HEARTBEAT_SECONDS:
                    last_word = now
                    say(f"{title} ... {now - start:.0f} s: {_last_line(log)}")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(_lines(log)[-40:])
        advice = f"\n{hint}" if hint else ""
        raise PreparationError(
            f"{title} failed (exit status {process.returncode}):\n{tail}\nWhole log: {log}{advice}"
        )
    say(f"{title}: done in {time.monotonic() - start:.0f} s")


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in _lines(log) if line.strip()]
    return lines[-1][:100] if lines else "starting"
