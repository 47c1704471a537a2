"""Stages that a test holds and lets go, and a clock that it turns."""

from __future__ import annotations

import threading
from typing import Any

PATIENCE_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Gate:
    """A stage that waits until the test lets it go, and says when it has begun."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began: list[Any] = []
        self._changed = threading.Condition()
        self._let = 0

    def __call__(self, value: Any) -> Any:
        with self._changed:
            self.began.append(value)
            self._changed.notify_all()
            number = len(self.began)
            assert self._changed.wait_for(lambda: self._let >= number, PATIENCE_S)
        return (*value, self.name) if isinstance(value, tuple) else (value, self.name)

    def wait_begun(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.began) >= count, PATIENCE_S)

    def let(self, count: int = 1) -> None:
        with self._changed:
            self._let += count
            self._changed.notify_all()
