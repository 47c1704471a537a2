"""Where this package keeps what it can make again."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/vla_simd_ros``, or ``~/.cache/vla_simd_ros``; it may not exist yet. Raises OSError
    for a user without a home, as services and containers may have."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else _home() / ".cache") / "vla_simd_ros"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise OSError(
            errno.EINVAL, "this user has no home folder, expected one, HOME or XDG_CACHE_HOME"
        ) from None
