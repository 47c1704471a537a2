"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vla_simd_ros.executors.convolution import CONVOLUTIONS, DEFAULT_CONVOLUTION

if TYPE_CHECKING:
    from vla_simd_ros.executors.simd_executor import SimdExecutor


class SettingError(ValueError):
    """The engine cannot have a setting of the command line or the environment."""


def add_convolution(parser: argparse.ArgumentParser) -> None:
    """The engine's algorithm for convolutions."""
    parser.add_argument(
        "--convolution",
        choices=CONVOLUTIONS,
        help="algorithm of the 3x3 convolutions; auto and auto4 take the fastest of those up to winograd2 or "
        f"winograd4 for each layer (default: {DEFAULT_CONVOLUTION})",
    )


def make_engine(convolution: str, threads: int = 0) -> SimdExecutor:
    """The engine with these settings. Raises `SettingError` for what it cannot have on this machine."""
    from vla_simd_ros.executors.simd_executor import SimdExecutor

    try:
        return SimdExecutor(threads=threads, convolution=convolution)
    except ValueError as error:
        raise SettingError(str(error)) from None
