"""``vla_simd make-checkpoint``: a random checkpoint of any policy, with one command line for all."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints.synthesis import (
    POLICY_TYPES,
    Camera,
    Options,
    default_options,
    make_checkpoint,
)
from vla_simd_ros.checkpoints.synthesis.options import DTYPES
from vla_simd_ros.checkpoints.synthesis.registry import SCALED_DOWN

# Sizes that a policy may have; None leaves the policy's own.
_SIZES = {
    "chunk_size": "actions in a chunk",
    "encoder_layers": "layers of the encoder",
    "decoder_layers": "layers of the decoder",
    "dim_model": "width of the transformer",
    "heads": "attention heads",
    "feedforward": "width of the feed-forward layers",
}


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "make-checkpoint",
        help="write a random checkpoint in the format of a trained one",
        description="Write a folder of random weights, the same for the same seed, as LeRobot lays it out, "
        "or as OpenVLA's authors do.",
    )
    parser.add_argument("policy", choices=POLICY_TYPES, help="policy to make")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="new folder to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and statistics (default: 0)")
    parser.add_argument(
        "--cameras",
        type=_cameras,
        metavar="NAME[:HxW],...",
        help="cameras in the policy's order; 'none' for none (default: front,wrist; octo: primary,wrist; "
        "minddrive and orion: six; openvla: image)",
    )
    parser.add_argument(
        "--image-size",
        type=image_size,
        metavar="HxW",
        help="pixels of cameras without a size of their own (default: 480x640; octo: 256x256 and "
        "128x128; minddrive and orion: 160x320, full size 320x640; openvla: 224x224)",
    )
    parser.add_argument(
        "--state-dim",
        type=int,
        help="width of the robot's state (default: 6; octo, openvla: none; a vehicle's is 8)",
    )
    parser.add_argument(
        "--env-state-dim", type=int, default=0, help="width of the environment's state (default: 0)"
    )
    parser.add_argument(
        "--action-dim", type=int, help="width of an action (default: 6; octo, openvla: 7; a vehicle's is 4)"
    )
    parser.add_argument(
        "--full-size",
        action="store_true",
        help=f"the published sizes, also of {', '.join(SCALED_DOWN)}, which are scaled down otherwise",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="stored weights (default: fp32)")
    sizes = parser.add_argument_group("sizes", "as far as the policy has them; its own where not given")
    for name, summary in _SIZES.items():
        sizes.add_argument(f"--{name.replace('_', '-')}", type=int, help=summary)
    sizes.add_argument("--backbone", help="image backbone, e.g. resnet18, or dinov2 for turbovla")
    sizes.add_argument("--pre-norm", action="store_true", default=None, help="normalize before each layer")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="FIELD=VALUE",
        help="any other field of config.json, nested ones with dots: text_config.num_layers=2",
    )


def run(args: argparse.Namespace) -> int:
    """Write the checkpoint and say what it is."""
    names = (*_SIZES, "backbone", "pre_norm")
    robot = default_options(args.policy, args.full_size)
    options = Options(
        seed=args.seed,
        cameras=_chosen_cameras(args.cameras, args.image_size, robot.cameras),
        state_dim=robot.state_dim if args.state_dim is None else args.state_dim,
        env_state_dim=args.env_state_dim,
        action_dim=robot.action_dim if args.action_dim is None else args.action_dim,
        dtype=args.dtype,
        sizes={name: getattr(args, name) for name in names if getattr(args, name) is not None},
        settings=dict(args.set),
        full_size=args.full_size,
    )
    parameters = make_checkpoint(args.policy, args.out, options)
    megabytes = sum(file.stat().st_size for file in args.out.iterdir()) / 1e6
    print(
        f"{args.out}: random {args.policy} of {parameters / 1e6:.1f} M parameters, "
        f"{megabytes:.0f} MB, seed {args.seed}"
    )
    return 0


def _chosen_cameras(
    named: list[tuple[str, tuple[int, int] | None]] | None,
    size: tuple[int, int] | None,
    own: tuple[Camera, ...],
) -> tuple[Camera, ...]:
    """The cameras named, or the policy's ``own``; ``size`` is of those without one of theirs."""
    if named is None:
        return own if size is None else tuple(Camera(camera.name, *size) for camera in own)
    sizes = {camera.name: (camera.height, camera.width) for camera in own}
    usual = own[0].height, own[0].width
    return tuple(Camera(name, *(given or size or sizes.get(name, usual))) for name, given in named)


def image_size(text: str) -> tuple[int, int]:
    height, separator, width = text.partition("x")
    if not (separator and height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is no image size, expected HEIGHTxWIDTH, e.g. 480x640")
    return int(height), int(width)


def _cameras(text: str) -> list[tuple[str, tuple[int, int] | None]]:
    if text == "none":
        return []
    cameras = []
    for entry in text.split(","):
        name, separator, size = entry.partition(":")
        if not name:
            raise argparse.ArgumentTypeError(f"'{text}' has a camera without a name, expected NAME[:HxW],...")
        if not re.fullmatch(r"[\w.-]+", name):
            raise argparse.ArgumentTypeError(
                f"'{name}' is no name of a camera, expected letters, digits, '_', '-' and '.' in NAME[:HxW]"
            )
        cameras.append((name, image_size(size) if separator else None))
    return cameras


def setting(text: str) -> tuple[str, Any]:
    field, separator, value = text.partition("=")
    if not (field and separator):
        raise argparse.ArgumentTypeError(f"'{text}' is no setting, expected FIELD=VALUE")
    try:
        return field, json.loads(value)
    except json.JSONDecodeError:
        return field, value
