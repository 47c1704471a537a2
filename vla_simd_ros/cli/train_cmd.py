"""``vla_simd train``: a policy from demonstrations, or from a teacher."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.checkpoints.execution import pacing_from
from vla_simd_ros.cli.make_checkpoint_cmd import image_size, setting
from vla_simd_ros.control.query_timing import Pacing, QueryPacing, chosen_pacing
from vla_simd_ros.training.recipe import RecipeError

if TYPE_CHECKING:
    from vla_simd_ros.training.demonstrations import Frames
    from vla_simd_ros.training.run import Run

TOKENS = "impact_tokens"

_RECIPE = {
    "steps": (int, "steps in all, those before --resume included (default: 100000)"),
    "batch_size": (int, "observations in a step (default: 64)"),
    "seed": (int, "of weights, order and noise (default: 0)"),
    "warmup_steps": (int, "first steps, in which the learning rate rises (default: 500)"),
    "decay_steps": (int, "last steps, in which it falls to nothing (default: 0)"),
    "held_out": (float, "share of episodes that are kept to measure errors with (default: 0.05)"),
    "frame_stride": (int, "observe every so-many-th frame only (default: 1)"),
    "image_shift": (int, "move pictures by so many pixels at most (default: 0)"),
    "image_brightness": (float, "make pictures darker or brighter by this share at most (default: 0)"),
    "state_noise": (float, "noise on the state, in its standard deviations (default: 0)"),
}
_TOKEN_RECIPE = {
    "action_quantile": (
        float,
        "share of actions below all bins, and above (default: 0.001)",
    ),
    "consistency": (float, "weight of the consistency loss in distillation (default: 1)"),
    "omega": (float, "weight of the cross-entropy beside it (default: 1)"),
    "fresh_guesses": (
        float,
        "share of guesses that are new random ones (default: 0.25)",
    ),
    "repeated_guesses": (float, "share of guesses that are the first token repeated (default: 0.5)"),
}
_LOG_EVERY = 500
_SAVE_EVERY_S = 180.0
_FOLLOW_WITHIN = 0.15
_DIFFERENT = 1


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "train",
        help="train IMPACT, ACT or an action-token policy on demonstrations",
        description="Train a policy on a LeRobot dataset (format 3). Writes into the folder: the policy as"
        " pretrained_model/, the state to go on from, the log of losses and their curve. Ctrl-C stops and"
        " keeps what was learned.",
    )
    parser.add_argument(
        "policy",
        choices=("impact", "act", TOKENS),
        help=f"act takes no instruction; {TOKENS} needs --init or --distill",
    )
    parser.add_argument(
        "--data", required=True, type=Path, nargs="+", metavar="DIR", help="LeRobot datasets of one robot"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="train_config.json of another run, whose settings hold where no option says otherwise",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="FIELD=VALUE",
        help="a field of the policy's config.json: dim_model=256, backbone_width=32, kl_weight=10",
    )
    parser.add_argument("--lr", type=float, help="learning rate (default: 1e-4; act: 1e-5)")
    parser.add_argument("--lr-backbone", type=float, help="that of the backbone (default: as --lr)")
    recipe = parser.add_argument_group("recipe")
    for name, (kind, text) in _RECIPE.items():
        recipe.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=text)
    recipe.add_argument(
        "--precision", choices=("fp32", "bf16"), help="of products in training (default: fp32)"
    )
    parser.add_argument(
        "--text-encoder",
        type=Path,
        metavar="DIR",
        help="T5 or BERT with its tokenizer (default: MiniLM, from its Python package)",
    )
    parser.add_argument(
        "--image-size", type=image_size, metavar="HxW", help="resize pictures (default: as recorded)"
    )
    _add_token_options(parser)
    parser.add_argument("--cache", type=Path, metavar="DIR", help="decoded frames (default: in --out)")
    _add_pacing(parser)
    parser.add_argument("--device", default="cpu", help="PyTorch's name of it: cpu, cuda (default: cpu)")
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="of PyTorch and the engine (default: their own choice)",
    )
    parser.add_argument(
        "--log-every", type=int, default=_LOG_EVERY, metavar="N", help=f"steps (default: {_LOG_EVERY})"
    )
    parser.add_argument(
        "--save-every",
        type=float,
        default=_SAVE_EVERY_S,
        metavar="S",
        help=f"seconds (default: {_SAVE_EVERY_S:g})",
    )
    parser.add_argument(
        "--follow",
        type=Path,
        metavar="FILE",
        help="log.csv of an earlier run of the recipe: tell its losses beside this one's; status 1 where "
        "they differ",
    )
    parser.add_argument(
        "--follow-within",
        type=float,
        default=_FOLLOW_WITHIN,
        metavar="SHARE",
        help=f"how much losses may differ (default: {_FOLLOW_WITHIN:g})",
    )


def _add_pacing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--query-pacing",
        type=QueryPacing,
        choices=list(QueryPacing),
        metavar="WHEN",
        help=f"when the policy wants to be queried: {', '.join(QueryPacing)}; kept with it (default: nothing "
        "is said)",
    )
    parser.add_argument(
        "--query-threshold",
        type=int,
        metavar="STEPS",
        help="when no more control steps than these have a row: on_demand",
    )


def _add_token_options(parser: argparse.ArgumentParser) -> None:
    tokens = parser.add_argument_group(f"{TOKENS}: one of --init and --distill")
    tokens.add_argument("--init", type=Path, metavar="DIR", help="trained IMPACT, whose encoder is taken")
    tokens.add_argument(
        "--distill",
        type=Path,
        metavar="DIR",
        help=f"trained {TOKENS}: teacher whose Jacobi trajectories are harvested and learned from",
    )
    tokens.add_argument(
        "--trajectories", type=Path, metavar="DIR", help="harvested trajectories (default: in --out)"
    )
    tokens.add_argument(
        "--share-weights",
        action="store_true",
        help="store what is trained only; the policy needs the folder of --init or --distill to be loaded",
    )
    tokens.add_argument("--half", action="store_true", help="store what is trained in float16")
    for name, (kind, text) in _TOKEN_RECIPE.items():
        tokens.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=text)


def run(args: argparse.Namespace) -> int:
    """Train, and say where the policy is."""
    import torch

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    # SIGINT too: a process started in the background of a script ignores it otherwise.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if args.follow:
        from vla_simd_ros.training.followed import read_losses

        read_losses(args.follow)  # before an hour of training, not after it
    session = _tokens_session(args) if args.policy == TOKENS else _session(args)
    folder = session.train(log_every=args.log_every, save_every_s=args.save_every)
    _say(f"{folder}: {args.policy} after {session.steps_taken} steps")
    return _follow(args) if args.follow else 0


def _session(args: argparse.Namespace) -> Run:
    from vla_simd_ros.training.session import Request, Session

    for name in ("init", "distill", "trajectories", "share_weights", "half"):
        if getattr(args, name):
            raise RecipeError(f"--{name.replace('_', '-')}: is for {TOKENS}, the policy is {args.policy}")
    given = _given(args.config)
    request = Request(
        policy=args.policy,
        dataset=_dataset(args),
        data=[str(folder) for folder in args.data],
        folder=args.out,
        settings={**given.get("settings", {}), **dict(args.set), **asked_rates(args)},
        training={**given.get("training", {}), **asked_recipe(args)},
        text_encoder=args.text_encoder,
        image_size=args.image_size,
        cache=args.cache,
        resume=args.resume,
        device=args.device,
        pacing=asked_pacing(args, given),
    )
    return Session(request, _say)


def _tokens_session(args: argparse.Namespace) -> Run:
    from vla_simd_ros.training.tokens_session import TokensRequest, TokensSession

    if (args.init is None) is (args.distill is None):
        raise RecipeError(f"{TOKENS}: expected one of --init IMPACT and --distill TEACHER")
    for name in ("text_encoder", "image_size", "lr_backbone"):
        if getattr(args, name) is not None:
            raise RecipeError(f"--{name.replace('_', '-')}: {TOKENS} takes a trained encoder as it is")
    given = _given(args.config)
    rate = {} if args.lr is None else {"optimizer_lr": args.lr}
    request = TokensRequest(
        source=args.distill or args.init,
        distill=args.distill is not None,
        dataset=_dataset(args),
        data=[str(folder) for folder in args.data],
        folder=args.out,
        settings={**given.get("settings", {}), **dict(args.set), **rate},
        training={**given.get("training", {}), **asked_recipe(args)},
        trajectories=args.trajectories,
        cache=args.cache,
        resume=args.resume,
        device=args.device,
        pacing=asked_pacing(args, given),
        threads=args.threads,
        share_weights=args.share_weights,
        half=args.half,
    )
    return TokensSession(request, _say)


def _dataset(args: argparse.Namespace) -> Frames:
    from vla_simd_ros.datasets.lerobot_v3 import open_dataset
    from vla_simd_ros.training.several import Several

    return Several([open_dataset(folder) for folder in args.data])


def _follow(args: argparse.Namespace) -> int:
    """Say how the losses of this run and the earlier one compare; 0 where they are alike."""
    from vla_simd_ros.training.followed import followed
    from vla_simd_ros.training.trainer import LOG_FILE

    found = followed(args.out / LOG_FILE, args.follow)
    alike = sum(abs(each.difference) <= args.follow_within for each in found)
    _say("\n".join([f"samples, loss, here, in {args.follow}", *map(str, found)]))
    _say(f"{alike} of {len(found)} losses within {args.follow_within:.0%} of the earlier run")
    return 0 if alike == len(found) else _DIFFERENT


def _given(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    from vla_simd_ros.checkpoints.json_file import read_json_object

    return read_json_object(path)


def asked_pacing(args: argparse.Namespace, given: Mapping[str, Any]) -> Pacing | None:
    """What is asked for, else what the other run's settings have; None for neither."""
    if args.query_pacing is None and args.query_threshold is None:
        return pacing_from(given.get("execution", {}), args.config)
    return chosen_pacing(args.query_pacing, args.query_threshold, None)


def asked_recipe(args: argparse.Namespace) -> dict[str, Any]:
    names = (*_RECIPE, *_TOKEN_RECIPE, "precision")
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def asked_rates(args: argparse.Namespace) -> dict[str, float]:
    backbone = args.lr if args.lr_backbone is None else args.lr_backbone
    rates = {"optimizer_lr": args.lr, "optimizer_lr_backbone": backbone}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, flush=True)
