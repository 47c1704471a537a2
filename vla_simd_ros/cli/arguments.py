"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.decoding.decoders import DECODERS, DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.decoding.parallel import INITIALIZATIONS
from vla_simd_ros.executors.convolution import CONVOLUTIONS
from vla_simd_ros.executors.settings import keep_exact, parse_settings, settings

if TYPE_CHECKING:
    from vla_simd_ros.checkpoints import Checkpoint
    from vla_simd_ros.tuning.tuned import Choice

# Settings that have an option of their own too.
_OPTIONS = ("threads", "isa", "convolution")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The engine's settings; :func:`setting_changes` reads them."""
    known = settings()
    group = add_plain_settings(parser)
    group.add_argument("--convolution", choices=CONVOLUTIONS, help=known["convolution"].description)
    group.add_argument(
        "--exact",
        action="store_true",
        help="keep the actions as close to float64 as fp32 can: convolution=exact, linear=direct",
    )
    group.add_argument(
        "--settings",
        default="auto",
        metavar="SOURCE",
        help="where settings come from: auto (those of vla_simd tune for such a checkpoint, if any), "
        "default, or a file of vla_simd tune; the other options replace single ones (default: auto)",
    )


def add_plain_settings(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The engine's settings for what is not tuned; :func:`plain_changes` reads them."""
    known = settings()
    group = parser.add_argument_group("engine")
    group.add_argument("--threads", type=int, metavar="N", help=known["threads"].description)
    group.add_argument("--isa", help=known["isa"].description)
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"any setting, repeatedly: {', '.join(known)}",
    )
    return group


def add_int8(parser: argparse.ArgumentParser) -> None:
    """The groups of layers in int8."""
    parser.add_argument(
        "--int8",
        default="",
        metavar="GROUPS",
        help="groups of layers to compute in int8, with commas ('vla_simd inspect' names them; 'encoder' "
        "stands for all groups of the encoder), all, or auto for those that are faster so on this machine",
    )


def add_num_steps(parser: argparse.ArgumentParser) -> None:
    """The solver's steps."""
    parser.add_argument(
        "--num-steps",
        type=count,
        metavar="N",
        help="solver steps of a query, for a policy that iterates (default: the checkpoint's)",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """The seed of a policy's noise."""
    parser.add_argument(
        "--seed",
        type=seed,
        metavar="N",
        help="seed of the noise of a policy that iterates (default: other noise each time)",
    )


def add_decoder(
    parser: argparse.ArgumentParser,
    default: DecoderOptions = DEFAULT_OPTIONS,
    *,
    seed_option: str = "--decoder-seed",
    lists: bool = False,
) -> None:
    """How tokens are decoded; :func:`decoder_options` reads it. With ``lists``, several decoders and several
    sigmas, with commas, which :func:`decoder_conditions` reads."""
    group = parser.add_argument_group(
        "decoder", "of policies that spell their actions in tokens, and of texts"
    )
    names = ", ".join(DECODERS)
    group.add_argument(
        "--decoder",
        **({"metavar": "LIST"} if lists else {"choices": DECODERS}),
        default=default.decoder,
        help=f"{f'some of {names}; ' if lists else ''}see docs/decoding.md (default: %(default)s)",
    )
    group.add_argument(
        "--block",
        type=count,
        default=default.block,
        metavar="N",
        help=f"tokens that are decoded at once (default: {default.block or 'all of a chunk'})",
    )
    group.add_argument(
        "--sigma",
        **({"metavar": "LIST"} if lists else {"metavar": "P", "type": float}),
        default=str(default.sigma) if lists else default.sigma,
        help="least probability of a token at which early_exit is content (default: %(default)s)",
    )
    group.add_argument(
        "--max-passes", type=count, default=default.max_passes, metavar="N", help="(default: no limit)"
    )
    group.add_argument(
        "--initialization",
        choices=INITIALIZATIONS,
        default=default.initialization,
        help="what is guessed at first (default: %(default)s)",
    )
    group.add_argument(
        seed_option,
        dest="decoder_seed",
        type=seed,
        default=default.decoder_seed,
        metavar="N",
        help="of random guesses (default: %(default)s)",
    )


def decoder_options(args: argparse.Namespace) -> DecoderOptions:
    """The decoder that the command line names."""
    return DecoderOptions(**{field.name: getattr(args, field.name) for field in fields(DecoderOptions)})


def decoder_conditions(args: argparse.Namespace, decoders: str) -> tuple[DecoderOptions, ...]:
    """Those of ``decoders``, names with commas, early_exit once with each sigma of the command line. Raises
    DecodingError for one that does not exist."""
    found = []
    sigmas = [_probability(text) for text in str(args.sigma).split(",")]
    for name in (part.strip() for part in decoders.split(",")):
        for sigma in sigmas if name == "early_exit" else [DEFAULT_OPTIONS.sigma]:
            args_of_one = argparse.Namespace(**{**vars(args), "decoder": name, "sigma": sigma})
            found.append(decoder_options(args_of_one))
            found[-1].make(1)  # refuses what does not exist
    return tuple(found)


def _probability(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DecodingError(f"sigma is '{text}', expected a probability") from None


def seed(text: str) -> int:
    """A seed, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no seed, expected an integer, 0 or more")
    return int(text)


def count(text: str) -> int:
    """How many of something, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number, expected 1 or more")
    return int(text)


class OutputError(ValueError):
    """A file that cannot be written; the text says which and why."""


def check_outputs(*paths: Path | None) -> None:
    """Raise OutputError for a file that could not be written, before anything is computed for it."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder, expected a file")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise OutputError(f"cannot write {path}: there is no folder {folder}")
        if not os.access(opened := path if path.exists() else folder, os.W_OK):
            raise OutputError(f"cannot write {path}: {opened} is not writable")


def setting_changes(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line names. Raises SettingError for one that does not exist,
    or that does not go with ``--exact``."""
    changes = plain_changes(args)
    return keep_exact(changes) if args.exact else changes


def plain_changes(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line names one by one. Raises SettingError for an unknown one."""
    options = {name: value for name in _OPTIONS if (value := getattr(args, name, None)) is not None}
    return {**options, **parse_settings(args.set)}


def engine_choice(args: argparse.Namespace, checkpoint: Checkpoint, int8: str = "") -> Choice:
    """The settings for a checkpoint, from the source and with the changes that the command line names, and
    the groups of layers that ``int8`` stands for.

    Raises SettingError, and TuningError for a file of settings that is of no use here.
    """
    from vla_simd_ros.tuning.tuned import resolve

    return resolve(args.settings, checkpoint, setting_changes(args), int8)
