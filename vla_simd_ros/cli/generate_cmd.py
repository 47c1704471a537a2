"""``vla_simd generate``: the answer of a language model, and how fast it was decoded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.cli.arguments import (
    add_decoder,
    add_plain_settings,
    count,
    decoder_options,
    plain_changes,
)
from vla_simd_ros.decoding.decoders import DECODERS, DEFAULT_BLOCK, DecoderOptions

if TYPE_CHECKING:
    from vla_simd_ros.decoding.base import Decoded

_DEFAULT_TOKENS = 128
_DEFAULT_DECODER = DecoderOptions(DECODERS[0], block=DEFAULT_BLOCK)


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "generate",
        help="let a language model answer",
        description="Print the answer of a language model in a GGUF file (Llama architecture) to a prompt, "
        "and on standard error how it was decoded.",
    )
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="what to answer to")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="go on from the prompt as it is; without it the model's template makes a conversation of it",
    )
    parser.add_argument(
        "--max-tokens", type=count, default=_DEFAULT_TOKENS, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--context",
        type=count,
        default=0,
        metavar="N",
        help="tokens of prompt and answer that there is room for (default: 2048, or as many as the model "
        "takes)",
    )
    add_decoder(parser, _DEFAULT_DECODER, seed_option="--seed")
    add_plain_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Load the model and answer."""
    from vla_simd_ros.executors.settings import EngineSettings
    from vla_simd_ros.executors.simd_executor import SimdExecutor
    from vla_simd_ros.language.language_model import LanguageModel

    decoder = decoder_options(args).make(args.max_tokens)
    executor = SimdExecutor(EngineSettings().but(**plain_changes(args)))
    model = LanguageModel.load(args.model, executor, args.context)
    if args.raw:
        answer = model.complete(args.prompt, decoder, args.max_tokens)
    else:
        answer = model.chat([{"role": "user", "content": args.prompt}], decoder, args.max_tokens)
    print(answer.text)
    print(summary(args.decoder, answer.decoded), file=sys.stderr)
    return 0


def summary(decoder: str, decoded: Decoded) -> str:
    """One line on how tokens were decoded."""
    rates = decoded.mean_tokens_per_second, decoded.min_tokens_per_second
    return (
        f"{decoder}: {len(decoded.tokens)} tokens in {len(decoded.passes)} passes "
        f"({decoded.fixed_per_pass:.2f} a pass), {rates[0]:.1f} tokens/s, at least {rates[1]:.1f} in a pass; "
        f"ended: {decoded.exit.value}" + ("" if decoded.exact else ", not all tokens are the greedy ones")
    )
