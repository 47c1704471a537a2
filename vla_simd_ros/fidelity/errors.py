"""Why a comparison cannot be made."""

from __future__ import annotations


class UnavailableReferenceError(RuntimeError):
    """The reference asked for does not know this policy, or is not installed."""
