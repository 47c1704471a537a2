"""Arguments that several commands share."""

from __future__ import annotations

import argparse

from vla_simd_ros.executors.convolution import CONVOLUTIONS, DEFAULT_CONVOLUTION


def add_convolution(parser: argparse.ArgumentParser) -> None:
    """The engine's algorithm for convolutions."""
    parser.add_argument(
        "--convolution",
        choices=CONVOLUTIONS,
        help="algorithm of the 3x3 convolutions; auto and auto4 take the fastest of those up to winograd2 or "
        f"winograd4 for each layer (default: {DEFAULT_CONVOLUTION})",
    )
