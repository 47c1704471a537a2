"""``vla_simd bench``: this engine beside its peers, and its kernels beside the machine's ceilings."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.benchmarks.backend import PEERS, BenchmarkError
from vla_simd_ros.benchmarks.consistency import LEAST_PAIRS
from vla_simd_ros.cli.arguments import (
    add_decoder,
    add_int8,
    add_settings,
    check_outputs,
    decoder_conditions,
    decoder_options,
    engine_choice,
    setting_changes,
)
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.graph.int8 import FP32, INT8
from vla_simd_ros.graph.int8_groups import int8_setting

if TYPE_CHECKING:
    from vla_simd_ros.benchmarks.session import Options as SessionOptions
    from vla_simd_ros.policies.base import PolicyDefinition

DEFAULT_INSTRUCTION = "pick up the red cube and put it in the box"
_SOURCES_OF_ALL = ("auto", "default")
"""Sources of settings that mean the defaults to what does not compare whole policies."""
_CASES = 4
_SEED = 0
_LOADS = 5
_PROMPT_TOKENS = 256
_NEW_TOKENS = 64


def add_parser(subparsers: Any) -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "bench",
        help="measure query latency, beside other runtimes or kernel by kernel",
        description="Time queries from raw frames to robot units. With --peers, other runtimes run the same"
        " program on the same inputs in turns with this engine (A-B-B-A), after their outputs have been"
        " compared; results go to standard output, progress to standard error.",
    )
    parser.add_argument(
        "checkpoint",
        nargs="?",
        metavar="CHECKPOINT",
        help="policy folder, or a language model in a GGUF file; only --kernels can do without, and then"
        " takes a random full-size IMPACT",
    )
    parser.add_argument(
        "--peers",
        default="",
        metavar="NAMES",
        help=f"some of {','.join(PEERS)}; of a language model: llamacpp",
    )
    parser.add_argument(
        "--hold-peers",
        action="store_true",
        help="hold the peers that allow it (PyTorch alone) to this engine's --isa",
    )
    add_int8(parser)
    parser.add_argument(
        "--precision", choices=(FP32, INT8), help="of this engine; int8 is short for --int8 all"
    )
    add_decoder(parser)
    parser.add_argument(
        "--decoders",
        metavar="LIST",
        help="this engine with these decoders too, in turns with that of --decoder",
    )
    add_settings(parser)
    parser.add_argument("--instruction", default=DEFAULT_INSTRUCTION, metavar="TEXT")
    parser.add_argument(
        "--num-steps", type=int, metavar="N", help="steps of a policy that iterates (default: the solver's)"
    )
    parser.add_argument("--queries", type=int, default=24, metavar="N", help="timed per runner (default: 24)")
    parser.add_argument("--warmup", type=int, default=5, metavar="N", help="untimed before (default: 5)")
    parser.add_argument(
        "--blocks", type=int, default=6, metavar="N", help="there-and-back turns (default: 6)"
    )
    parser.add_argument(
        "--soak",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="then run without pause: first and last 15 s",
    )
    parser.add_argument(
        "--co-runner", action="store_true", help="then beside a process that keeps one core busy"
    )
    parser.add_argument("--profile", action="store_true", help="then show the time by block and kind")
    parser.add_argument(
        "--kernels", action="store_true", help="instead: each distinct layer on one core, and its ceilings"
    )
    parser.add_argument(
        "--ablate",
        action="store_true",
        help="instead: what each setting of the engine is worth, in pairs A-B-B-A",
    )
    parser.add_argument(
        "--roofline",
        type=Path,
        metavar="FILE.png",
        help="with --kernels: draw the layers below their ceilings",
    )
    parser.add_argument(
        "--load",
        type=int,
        nargs="?",
        const=_LOADS,
        metavar="N",
        help=f"instead: load N times ({_LOADS}), each in a fresh process: time to the first action, memory",
    )
    parser.add_argument(
        "--prompt-tokens",
        type=int,
        default=_PROMPT_TOKENS,
        metavar="N",
        help=f"of a language model: tokens to read (default: {_PROMPT_TOKENS})",
    )
    parser.add_argument(
        "--new-tokens",
        type=int,
        default=_NEW_TOKENS,
        metavar="N",
        help=f"of a language model: tokens to write (default: {_NEW_TOKENS})",
    )
    parser.add_argument(
        "--passes",
        action="store_true",
        help="instead, of what decodes tokens: the time of a pass by its number of tokens and its weights",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw what --passes measures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results with all conditions")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Raises ``BenchmarkError`` and ``CheckpointError`` for what cannot be measured."""
    _check(args)
    ways = (
        (args.passes, _passes),
        (_is_language_model(args), _language),
        (args.kernels, _kernels),
        (args.ablate, _ablate),
        (args.load, _load),
    )
    measure = next((way for asked, way in ways if asked), _compare)
    report, text = measure(args)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(text)
    return 0


def _check(args: argparse.Namespace) -> None:
    limits = {"queries": 1, "warmup": 0, "blocks": 1, "load": 1, "prompt_tokens": 1, "new_tokens": 2}
    for name, least in limits.items():
        if getattr(args, name) is not None and getattr(args, name) < least:
            option = name.replace("_", "-")
            raise BenchmarkError(f"--{option} is {getattr(args, name)}, expected at least {least}")
    check_outputs(args.json, args.markdown, args.roofline, args.plot)
    if args.roofline and not args.kernels:
        raise BenchmarkError("--roofline draws what --kernels measures, expected both")
    if args.plot and not args.passes:
        raise BenchmarkError("--plot draws what --passes measures, expected both")
    if args.ablate and (args.kernels or args.blocks < LEAST_PAIRS):
        raise BenchmarkError(f"--ablate goes without --kernels and with at least {LEAST_PAIRS} --blocks")
    if args.settings not in _SOURCES_OF_ALL and (args.ablate or args.kernels or args.load or args.passes):
        raise BenchmarkError(
            f"--settings {args.settings} is of no use with --ablate, --kernels, --load and --passes: they "
            "start from the defaults, which --set changes one by one"
        )
    if not args.checkpoint and not args.kernels:
        raise BenchmarkError("no checkpoint folder given; only --kernels can do without")


def _is_language_model(args: argparse.Namespace) -> bool:
    return bool(args.checkpoint) and Path(args.checkpoint).suffix == ".gguf"


def _language(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from vla_simd_ros.benchmarks import language
    from vla_simd_ros.benchmarks.conditions import busy_warning, describe_file, describe_machine
    from vla_simd_ros.benchmarks.interleave import make_plan
    from vla_simd_ros.benchmarks.language_prompts import make_prompts

    options = language.LanguageOptions(
        path=args.checkpoint,
        peers=tuple(name for name in args.peers.split(",") if name),
        plan=make_plan(args.queries, args.blocks),
        settings=EngineSettings(**setting_changes(args)),
    )
    language.check_language_peers(options.peers)
    prompts = make_prompts(Path(args.checkpoint), _CASES, args.prompt_tokens, args.new_tokens)
    machine = describe_machine()
    if warning := busy_warning():
        _say(f"warning: {warning}")
    result = language.run_language_bench(options, prompts, _say)
    described = result, options, describe_file(Path(args.checkpoint)), machine
    return language.language_json(*described), language.language_markdown(*described)


def _passes(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from vla_simd_ros.benchmarks import passes
    from vla_simd_ros.benchmarks.conditions import describe_checkpoint, describe_file, describe_machine
    from vla_simd_ros.checkpoints import load_checkpoint

    machine, path = describe_machine(), Path(args.checkpoint)
    settings = EngineSettings(**setting_changes(args))
    if _is_language_model(args):
        report, model = passes.measure_forms(path, settings, _say), describe_file(path)
    else:
        report = passes.measure_policy(load_checkpoint(path), settings, _say)
        model = {"file": path.name, **describe_checkpoint(path)}
    if args.plot:
        from vla_simd_ros.benchmarks.passes_plot import plot_passes

        title = f"passes of {path.name}, {report.isa}, {report.threads} thread(s)"
        plot_passes(report, title, args.plot)
    described = report, model, machine
    return passes.passes_json(*described), passes.passes_markdown(*described)


def _compare(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from vla_simd_ros.benchmarks.conditions import busy_warning, describe_checkpoint, describe_machine
    from vla_simd_ros.benchmarks.interleave import make_plan
    from vla_simd_ros.benchmarks.profile import profile_tables
    from vla_simd_ros.benchmarks.report import Context, to_json, to_markdown
    from vla_simd_ros.benchmarks.roofline import measure_roofline
    from vla_simd_ros.benchmarks.session import Options, check_options, run_bench
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.fidelity.cases import random_cases
    from vla_simd_ros.policies.registry import define_policy

    checkpoint = load_checkpoint(args.checkpoint)
    chosen = engine_choice(args, checkpoint, int8_setting(args.precision or FP32, args.int8))
    cases = random_cases(checkpoint, _CASES, _SEED, num_steps=args.num_steps)
    options = Options(
        checkpoint=args.checkpoint,
        peers=tuple(name for name in args.peers.split(",") if name),
        plan=make_plan(args.queries, args.blocks),
        warmup=args.warmup,
        instruction=args.instruction,
        settings=chosen.settings,
        int8=chosen.int8,
        hold_peers=args.hold_peers,
        soak_s=args.soak,
        co_runner=args.co_runner,
        profile=args.profile,
        steps=cases[0].num_steps,
        decoder=decoder_options(args),
        decoders=decoder_conditions(args, args.decoders) if args.decoders else (),
    )
    check_options(options)
    _check_decoders(options, define_policy(checkpoint))
    machine = describe_machine()
    if warning := busy_warning():
        _say(f"warning: {warning}")
    context = Context(
        policy=checkpoint.type,
        cameras={name: "x".join(map(str, feature.shape[1:])) for name, feature in checkpoint.cameras.items()},
        checkpoint=describe_checkpoint(Path(args.checkpoint)),
        observations=f"{_CASES} random ones of seed {_SEED}, in turn",
        machine=machine,
    )
    result = run_bench(options, cases, _say)
    text = to_markdown(result, options, context)
    if result.profile:
        text += "\n" + profile_tables(result.profile, measure_roofline(result.isa, result.threads))
    return to_json(result, options, context), text


def _check_decoders(options: SessionOptions, policy: PolicyDefinition) -> None:
    """Raise BenchmarkError where decoders or peers are no use for a policy."""
    from vla_simd_ros.benchmarks.peers.policy_programs import no_peers

    if policy.action_tokens is None and (options.decoders or options.decoder.changed):
        asked = ", ".join(map(str, options.decoders or (options.decoder,)))
        raise BenchmarkError(
            f"decoder {asked}: the policy '{policy.spec.type}' decodes no tokens, it computes its actions "
            "directly"
        )
    if policy.action_tokens is not None and options.peers:
        raise no_peers(policy.spec.type)


def _ablate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from vla_simd_ros.benchmarks.ablation_session import AblationTask, measure_ablation
    from vla_simd_ros.benchmarks.interleave import make_plan

    base = EngineSettings(**setting_changes(args))
    plan = make_plan(args.queries, args.blocks)
    task = AblationTask(args.checkpoint, args.instruction, base, plan, args.warmup)
    return measure_ablation(task, _say)


def _kernels(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from vla_simd_ros.benchmarks.kernel_session import measure_kernels

    settings = EngineSettings(**setting_changes(args)).but(threads=1)
    measured = measure_kernels(args.checkpoint, settings, args.instruction, _say)
    if args.roofline:
        from vla_simd_ros.benchmarks.roofline_plot import plot_roofline

        title = f"{measured.machine['cpu']}: layers of the query program, each by itself"
        plot_roofline(measured.layers, measured.roofline, title, args.roofline)
    return measured.to_json(), measured.to_markdown()


def _load(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from vla_simd_ros.benchmarks import loading
    from vla_simd_ros.benchmarks.conditions import describe_checkpoint, describe_machine
    from vla_simd_ros.checkpoints import load_checkpoint

    folder = Path(args.checkpoint)
    weights = loading.weight_bytes(load_checkpoint(folder))
    settings = EngineSettings(**setting_changes(args))
    loads = loading.measure_loading(folder, args.instruction, settings, args.load, _say)
    conditions = {"checkpoint": describe_checkpoint(folder), "machine": describe_machine()}
    return loading.to_json(loads, weights, conditions), loading.to_markdown(loads, weights)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
