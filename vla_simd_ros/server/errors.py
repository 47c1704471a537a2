"""The one error of what comes over the wire."""

from __future__ import annotations


class WireError(ValueError):
    """What a client sent cannot be used; the message says what was wrong and what was expected."""
