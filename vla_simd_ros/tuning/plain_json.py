"""JSON that people write by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for anything else, and for a name that is there twice."""
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"'{name}' is there twice, expected it once")
        found[name] = value
    return found
