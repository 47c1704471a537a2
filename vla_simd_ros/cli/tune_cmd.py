"""``vla_simd tune``: what is fastest on this processor."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.cli.arguments import check_outputs

if TYPE_CHECKING:
    from vla_simd_ros.graph.ir import Op
    from vla_simd_ros.tuning.tile_session import TileTask

_INSTRUCTION = "pick up the red cube and put it in the box"
_BUDGET_S = 600.0
# Options of one of the two things to choose, with what they are where they are not given.
_OF_SETTINGS = {"out": None, "settings": "", "budget": _BUDGET_S, "int8": False, "instruction": _INSTRUCTION}
_OF_TILES = {"target": None, "g": None, "json": None, "markdown": None}


class TuneError(ValueError):
    """Arguments that do not go together."""


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "tune",
        help="choose what is fastest on this processor",
        description="Time the settings of the engine for a checkpoint on this machine, in pairs, and write"
        " the faster ones to a file that later runs use. With --tiles: choose the register tile of matrix"
        " products for a described processor, from its registers, latencies and loads and from the compiled"
        " inner loop, and measure every feasible tile where the instruction set runs. Results go to standard"
        " output, progress to standard error.",
    )
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help="policy folder")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write the settings (default: where auto looks for them)",
    )
    parser.add_argument(
        "--settings", default="", metavar="NAMES", help="settings to try, with commas (default: all)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=_BUDGET_S,
        metavar="SECONDS",
        help="after which no further value is tried (default: 600)",
    )
    parser.add_argument(
        "--int8",
        action="store_true",
        help="find the groups of layers that are faster in int8 too, for --int8 auto of other commands",
    )
    parser.add_argument(
        "--instruction", default=_INSTRUCTION, metavar="TEXT", help="for policies that take one"
    )
    parser.add_argument("--tiles", action="store_true", help="choose a register tile")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="for --tiles: avx2, avx512, neon, or a JSON file that describes one (default: of this machine)",
    )
    parser.add_argument(
        "--g",
        type=int,
        metavar="N",
        help="for --tiles: what layer widths divide by, without a checkpoint",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="for --tiles: write all results")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="for --tiles: write the tables")


def run(args: argparse.Namespace) -> int:
    """Choose, measure and print. Raises TuneError for arguments that do not go together."""
    absent = _OF_SETTINGS if args.tiles else _OF_TILES
    for name, value in absent.items():
        if getattr(args, name) != value:
            raise TuneError(f"--{name} is of no use {'with' if args.tiles else 'without'} --tiles")
    return _tiles(args) if args.tiles else _settings(args)


def _settings(args: argparse.Namespace) -> int:
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.tuning.settings_session import SettingsTask, tune_settings
    from vla_simd_ros.tuning.tuned import default_file, shape_of
    from vla_simd_ros.tuning.tuning_file import write_tuned

    if args.checkpoint is None:
        raise TuneError("expected a checkpoint, or --tiles")
    if not args.budget > 0:
        raise TuneError(f"--budget is {args.budget:g}, expected seconds above 0")
    names = [name for name in args.settings.split(",") if name]
    path = args.out or default_file(shape_of(load_checkpoint(args.checkpoint)))
    path.parent.mkdir(parents=True, exist_ok=True)
    check_outputs(path)
    tuned = tune_settings(
        SettingsTask(args.checkpoint, args.instruction, names, args.budget, args.int8), _say
    )
    write_tuned(tuned, path)
    for name, value in tuned.settings.items():
        print(f"{name} = {value}")
    if tuned.int8 is not None:
        print(f"int8 = {tuned.int8 or 'no group is faster'}")
    print(f"written to {path}")
    return 0


def _tiles(args: argparse.Namespace) -> int:
    from vla_simd_ros.tuning.tile_session import tune_tiles

    check_outputs(args.json, args.markdown)
    report, text = tune_tiles(_tile_task(args), _say)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")
    return 0


def _tile_task(args: argparse.Namespace) -> TileTask:
    from vla_simd_ros.tuning.packed_layers import packed_layers
    from vla_simd_ros.tuning.target import find_target
    from vla_simd_ros.tuning.tile_session import TileTask
    from vla_simd_ros.tuning.tile_sweep import IMPACT_SHAPES

    if (args.g is None) == (args.checkpoint is None):
        raise TuneError("--tiles: expected a checkpoint or --g, one of the two")
    if args.g is not None and args.g < 1:
        raise TuneError(f"--g is {args.g}, expected 1 or more")
    target = find_target(args.target or _isa_here())
    if args.g is not None:
        return TileTask(target, [args.g], IMPACT_SHAPES)
    layers = packed_layers(_ops(args.checkpoint), target.lanes)
    left_out = f", left out: {', '.join(map(str, layers.left_out))}" if layers.left_out else ""
    _say(f"output widths of packed layers: {', '.join(map(str, layers.widths))}{left_out}")
    return TileTask(target, layers.widths, layers.shapes)


def _ops(folder: str) -> list[Op]:
    """The operations of a query and of a step."""
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.fidelity.programs import instruct
    from vla_simd_ros.graph.ir import Lifetime

    programs = instruct(load_checkpoint(folder), _INSTRUCTION).compiled.programs
    return [op for lifetime in (Lifetime.QUERY, Lifetime.STEP) for op in programs[lifetime].ops]


def _isa_here() -> str:
    from vla_simd_ros import _engine
    from vla_simd_ros.tuning.target import TARGETS

    for isa in _engine.available_isas():
        if isa in TARGETS:
            return isa
    raise TuneError(f"this machine has none of {', '.join(TARGETS)}, expected a --target")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
