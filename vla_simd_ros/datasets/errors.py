"""What goes wrong with datasets, and with the packages that read them."""

from __future__ import annotations

import importlib
from typing import Any


class DatasetError(ValueError):
    """A dataset that cannot be read or written; the message names what is wrong and what is expected."""


def load_package(name: str) -> Any:
    """An optional package of the group `dataset`. Raises DatasetError, saying what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DatasetError(
            f"LeRobot datasets need '{name.partition('.')[0]}' ({error}): pip install 'vla_simd_ros[dataset]'"
        ) from error
