"""Lines typed at a terminal, or sent through a pipe, while something else goes on."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

_AT_ONCE = 4096
LONGEST = 1 << 16
"""Bytes of a line that are kept; what is longer is cut, so that what never ends does not fill the memory."""


class TypedLines:
    """Reads whole lines from a file descriptor without ever waiting for one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._open = True

    def take(self) -> Iterator[str]:
        """The lines that have come in since the last call; the last one without its end at the end of all."""
        while self._ready():
            data = os.read(self._descriptor, _AT_ONCE)
            if not data:
                self._open = False
                if self._rest:
                    yield self._rest.decode("utf-8", "replace")
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
            self._rest = self._rest[:LONGEST]

    def _ready(self) -> bool:
        if not self._open or not self._in_foreground():
            return False
        readable, _, _ = select.select([self._descriptor], [], [], 0)
        return bool(readable)

    def _in_foreground(self) -> bool:
        """A process in the background that reads from its terminal would be stopped."""
        if not os.isatty(self._descriptor):
            return True
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False
