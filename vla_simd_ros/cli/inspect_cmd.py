"""``vla_simd inspect``: the programs of a checkpoint's policy, operation by operation."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.cli.arguments import add_int8, add_settings, engine_choice

if TYPE_CHECKING:
    from vla_simd_ros.checkpoints import Checkpoint
    from vla_simd_ros.graph.cost import Cost
    from vla_simd_ros.graph.ir import Op
    from vla_simd_ros.graph.programs import CompiledPolicy, Program
    from vla_simd_ros.policies.base import ActionTokens, PolicySpec

_HEADER = ("op", "result", "shape", "lifetime", "block", "group", "precision", "FLOP", "bytes", "kernel")
_NUMERIC = ("FLOP", "bytes")
_FOLDED = "folded"
_NONE = "-"


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "inspect",
        help="print the programs of a checkpoint's policy",
        description="Print what is computed when: the process program (folded at load), the episode program "
        "(per instruction), the query program (per observation), the step program (per step or token).",
    )
    parser.add_argument("checkpoint", type=Path, help="LeRobot pretrained_model folder")
    add_int8(parser)
    add_settings(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--tokens", type=int, metavar="N", help="length of the instruction (default: the longest)"
    )
    length.add_argument("--instruction", metavar="TEXT", help="take the length of this instruction")


def run(args: argparse.Namespace) -> int:
    """Compile the policy and print its programs."""
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.executors.int8_choice import choose_int8
    from vla_simd_ros.executors.simd_executor import SimdExecutor
    from vla_simd_ros.graph.compile import compile_graph, optimize
    from vla_simd_ros.graph.fold_cache import FoldCache
    from vla_simd_ros.policies.registry import define_policy

    checkpoint = load_checkpoint(args.checkpoint)
    policy = define_policy(checkpoint)
    tokens = _instruction_length(checkpoint, policy.spec, args.tokens, args.instruction)
    chosen = engine_choice(args, checkpoint, args.int8)
    executor = SimdExecutor(chosen.settings)
    cache = FoldCache()
    graph = policy.build(tokens)
    groups = choose_int8(chosen.int8, optimize(graph, cache).ops, executor) if chosen.int8 else ()
    compiled = compile_graph(graph, cache, groups)
    executor.load(compiled)  # reads what is stored: damage shows here as it would when the policy is loaded
    steps = 1 if policy.solver is None else policy.solver.default_steps
    spelled = policy.action_tokens
    if spelled is not None:
        steps = spelled.count
        print(f"{_spelling(spelled, tokens)}\n")
    for line in describe(compiled, executor.kernel_name, steps):
        print(line)
    kept = ", ".join(f"{_scaled(size, 'B')} in {dtype}" for dtype, size in executor.weight_bytes.items())
    print(f"\nweights as packed: {kept}")
    return 0


def _spelling(spelled: ActionTokens, tokens: int | None) -> str:
    """How a policy spells its actions, in words."""
    most = "up to " if spelled.stop else ""
    return (
        f"actions are spelled in {most}{spelled.count} tokens, of {spelled.vocabulary} there are, behind "
        f"a prefix of {spelled.prefix_rows(tokens)} rows; the STEP program below is for one token, decoders "
        "run others for several at once"
    )


def describe(compiled: CompiledPolicy, kernel: Callable[[Op], str], steps: int = 1) -> list[str]:
    """The programs as lines of text; ``kernel`` names what computes an operation, ``steps`` is how often a
    query runs the step program."""
    from vla_simd_ros.graph.cost import Cost, total_cost
    from vla_simd_ros.graph.int8_groups import int8_groups
    from vla_simd_ros.graph.ir import Lifetime

    programs = [compiled.process, *compiled.programs.values()]
    groups = int8_groups(op for program in programs for op in program.ops)
    group_of = {op: name for name, ops in groups.items() for op in ops}
    lines: list[str] = []
    for program in programs:
        if program.ops:
            named = kernel if program.lifetime else _folded
            lines += [_title(program), *_table(program, group_of, named), ""]
    lines.append("total")
    for program in programs:
        cost = total_cost(program.ops) if program.ops else Cost()
        repeated = f", {steps} times a query" if program.lifetime is Lifetime.STEP and steps > 1 else ""
        lines.append(f"  {program.lifetime.name:8}{len(program.ops):5} operations, {_cost(cost)}{repeated}")
    lines.append(f"  constants of the runtime programs: {_scaled(compiled.constant_bytes, 'B')}")
    return [*lines, "", *_group_table(groups)]


def _group_table(groups: Mapping[str, Sequence[Op]]) -> list[str]:
    """What can be computed in int8, and what is."""
    from vla_simd_ros.graph.cost import total_cost
    from vla_simd_ros.graph.int8 import precision_of

    lines = ["groups of layers for --int8"]
    width = max(map(len, groups), default=0) + 2
    for name, ops in groups.items():
        precision = precision_of(ops[0].attrs)
        flops = _scaled(total_cost(ops).flops, "FLOP")
        lines.append(f"  {name:{width}}{precision:8}{len(ops):5} layers, {flops}")
    return lines


def _folded(op: Op) -> str:
    return _FOLDED


def _instruction_length(
    checkpoint: Checkpoint, spec: PolicySpec, tokens: int | None, instruction: str | None
) -> int | None:
    if not spec.uses_instruction:
        return tokens
    tokenizer = checkpoint.tokenizer()
    if instruction is not None:
        return len(tokenizer.encode(instruction))
    return spec.max_instruction_tokens if tokens is None else tokens


def _title(program: Program) -> str:
    from vla_simd_ros.graph.cost import total_cost

    when = f"{len(program.ops)} operations, {_cost(total_cost(program.ops))}"
    inputs = ", ".join(program.inputs) or "nothing"
    return f"{program.lifetime.name}: {when}; given: {inputs}"


def _table(program: Program, groups: Mapping[Op, str], kernel: Callable[[Op], str]) -> list[str]:
    from vla_simd_ros.graph.cost import op_cost
    from vla_simd_ros.graph.int8 import precision_of

    rows: list[Sequence[str]] = [_HEADER]
    for op in program.ops:
        cost, result = op_cost(op), op.output
        shape = "x".join(map(str, result.shape))
        numbers = (f"{cost.flops:,}", f"{cost.bytes:,}")
        precision = precision_of(op.attrs) if op in groups else _NONE
        where = (result.lifetime.name, op.block, groups.get(op, _NONE), precision)
        rows.append((_op(op), result.name, shape, *where, *numbers, kernel(op)))
    return list(_aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(_HEADER, row, widths, strict=True)
        yield "  ".join(f"{c:>{w}}" if h in _NUMERIC else f"{c:<{w}}" for h, c, w in cells).rstrip()


def _op(op: Op) -> str:
    """The kind, and what is fused into it: "conv2d+bias+residual+relu+film"."""
    if op.kind == "binary":
        return str(op.attrs["op"])
    if op.kind == "activation":
        return str(op.attrs["fn"])
    if op.kind not in ("linear", "conv2d"):
        return op.kind
    _, _, bias, residual, gamma, _ = op.inputs
    parts = [op.kind]
    parts += [name for name, tensor in (("bias", bias), ("residual", residual)) if tensor is not None]
    if op.attrs["activation"] != "none":
        parts.append(op.attrs["activation"])
    return "+".join([*parts, "film"] if gamma is not None else parts)


def _cost(cost: Cost) -> str:
    return f"{_scaled(cost.flops, 'FLOP')}, {_scaled(cost.bytes, 'B')} moved"


def _scaled(value: float, unit: str) -> str:
    for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.2f} {prefix}{unit}"
    return f"{value:.0f} {unit}"
