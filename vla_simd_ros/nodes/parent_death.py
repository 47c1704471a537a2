"""Commands that end with the process that started them, however that one ends."""

from __future__ import annotations

import shutil


def end_with_parent() -> list[str]:
    """What a command is started with so that it gets SIGINT when its parent is gone (util-linux)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "INT", "--"] if setpriv else []
