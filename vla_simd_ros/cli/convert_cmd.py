"""``vla_simd convert``: a checkpoint in another project's layout, rewritten as a folder of this package."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints.conversion.octo import convert_octo

_LAYOUTS: dict[str, Callable[[Path, Path, str], int]] = {"octo": convert_octo}


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "convert",
        help="rewrite a checkpoint of another project's layout",
        description="Rewrite a published checkpoint as a folder that the other commands and the nodes load. "
        "octo: a folder with config.json, dataset_statistics.json, example_batch.msgpack and "
        "<step>/default/checkpoint. Put T5's tokenizer.json or spiece.model into the new folder afterwards.",
    )
    parser.add_argument("layout", choices=list(_LAYOUTS), help="what the checkpoint is of")
    parser.add_argument("source", type=Path, help="folder to read")
    parser.add_argument("target", type=Path, help="new folder to write")
    parser.add_argument(
        "--dataset",
        default="",
        metavar="NAME",
        help="data set whose statistics give the actions their units, where there are several",
    )


def run(args: argparse.Namespace) -> int:
    """Convert, and say what was written."""
    parameters = _LAYOUTS[args.layout](args.source, args.target, args.dataset)
    print(f"{args.target}: {args.layout} of {parameters / 1e6:.1f} M parameters")
    return 0
