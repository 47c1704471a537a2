"""The hybrid scheduler's parameters, and what they mean for loading and running a policy on two executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.executors.settings import MOST_THREADS, EngineSettings
from vla_simd_ros.graph.int8_groups import int8_setting
from vla_simd_ros.hybrid.hybrid_loading import HybridOptions
from vla_simd_ros.hybrid.pipeline_supervisor import RestartSettings
from vla_simd_ros.hybrid.placement import LARGEST_NICE, Side
from vla_simd_ros.inference import EXECUTORS
from vla_simd_ros.nodes.param import LONGEST_S, Param, ParameterError
from vla_simd_ros.nodes.policy_settings import (
    CHECKPOINT,
    ENGINE_PARAMETERS,
    PRECISION_PARAMETERS,
    QUERY_PARAMETERS,
    SETTINGS,
    engine_parameter,
)
from vla_simd_ros.nodes.query_decoding import decoder_options

PREFIX_STARTS = ("just_in_time", "at_once")
_MOST_BLOCKS = 10_000
_MOST_FRAMES = 1_000_000
_MIB, _MOST_MIB = 1 << 20, 1 << 30
_ENGINE = tuple(name for name in ENGINE_PARAMETERS if name != "threads")


def _side(name: str, what: str) -> list[Param]:
    return [
        Param(f"{name}_executor", "simd", f"What computes {what}.", choices=EXECUTORS),
        Param(
            f"{name}_threads",
            1 if name == "prefix" else 0,
            f"Threads of the {name}'s executor; 0: one for each of its CPUs.",
            minimum=0,
            maximum=MOST_THREADS,
        ),
        Param(
            f"{name}_cpus",
            [-1],
            f"CPUs that the {name}'s threads run on, and nothing of the other side; -1: any that are free.",
            minimum=-1,
        ),
    ]


PARAMETERS = [
    CHECKPOINT,
    *_side("prefix", "the first blocks: the GPU's side, where there is one"),
    *_side("suffix", "the other blocks and all solver steps: the CPU's side"),
    Param("reserved_cpus", [-1], "CPUs that neither side uses, kept for others; -1: none.", minimum=-1),
    Param(
        "nice",
        0,
        "How far the threads of both sides stand back where others want their CPUs; 0: not at all.",
        minimum=0,
        maximum=LARGEST_NICE,
    ),
    *PRECISION_PARAMETERS,
    SETTINGS,
    *(engine_parameter(name) for name in _ENGINE),
    Param(
        "costs",
        "",
        "File of the blocks' costs on both sides, of vla_simd split --save-costs; empty: they are measured "
        "when the node is configured.",
    ),
    Param("cost_repeats", 3, "Runs of each block where costs are measured.", minimum=1, maximum=1000),
    Param(
        "zone_first",
        0,
        "Fewest blocks of the prefix: the first end of the dynamic zone; 0: two before the cut.",
        minimum=0,
        maximum=_MOST_BLOCKS,
    ),
    Param(
        "zone_last",
        0,
        "Most blocks of the prefix: the other end of the zone; 0: two behind the cut. Blocks in the zone are "
        "loaded on both sides.",
        minimum=0,
        maximum=_MOST_BLOCKS,
    ),
    Param(
        "cut",
        0,
        "Blocks of the prefix at first; 0: as many as give the shortest predicted interval.",
        minimum=0,
        maximum=_MOST_BLOCKS,
    ),
    Param(
        "prefix_memory",
        0,
        "MiB that the prefix may hold: weights of its blocks, of the whole zone, and activations of one cut; "
        "0: no limit.",
        minimum=0,
        maximum=_MOST_MIB,
    ),
    Param("suffix_memory", 0, "The same of the suffix.", minimum=0, maximum=_MOST_MIB),
    Param(
        "cut_margin",
        0.02,
        "Share of the interval that a move of the cut must be expected to save.",
        minimum=0.0,
        maximum=0.99,
    ),
    Param(
        "cut_memory",
        500,
        "Frames that are looked back at for loads that come back, for what moving the cut saved, and for the "
        "cut that is best on the whole.",
        minimum=1,
        maximum=_MOST_FRAMES,
    ),
    Param(
        "prefix_start",
        "just_in_time",
        "When the prefix of a frame begins: so that its result need not wait for the suffix, as far as its "
        "stages' times of lately tell; or as soon as the prefix's executor is free.",
        choices=PREFIX_STARTS,
    ),
    Param(
        "stall_timeout",
        10.0,
        "A stage that works on one frame for longer has failed, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "restart_limit",
        3,
        "Failures in a row after which the stages are started again; after one more the fallback computes, "
        "and after as many of its own nothing.",
        minimum=0,
        maximum=1000,
    ),
    Param(
        "restart_pause",
        0.5,
        "Before the first restart, seconds; twice as long before each one that follows in a row, up to 30.",
        minimum=0.0,
        maximum=30.0,
    ),
    Param("restart_forgiven", 100, "Results in a row after which earlier failures count no more.", minimum=1),
    Param(
        "fallback_executor",
        "simd",
        "What computes the whole policy, on the suffix's CPUs, after too many failures; loaded then.",
        choices=EXECUTORS,
    ),
    *QUERY_PARAMETERS,
]


@dataclass(frozen=True)
class HybridSettings:
    """How the policy is loaded, what follows failures, how the cut moves, and whether the first stage begins
    only so early that its result need not wait."""

    options: HybridOptions
    restarts: RestartSettings
    controller: Mapping[str, Any]
    late_prefix: bool


def hybrid_settings(values: Mapping[str, Any]) -> HybridSettings:
    """What the parameters mean.

    Raises:
        ParameterError: a list of CPUs is no set of them.
        SettingError: a setting of the engine has a value that it cannot have.
        Int8GroupError: precision and int8 contradict each other.
    """
    costs = values["costs"]
    options = HybridOptions(
        checkpoint=values["checkpoint"],
        prefix=_side_of(values, "prefix"),
        suffix=_side_of(values, "suffix"),
        fallback=values["fallback_executor"],
        reserved=_cpus(values, "reserved_cpus"),
        nice=values["nice"],
        settings=values["settings"],
        engine=EngineSettings(**{name: values[name] for name in _ENGINE}),
        int8=int8_setting(values["precision"], values["int8"]),
        costs=Path(costs) if costs else None,
        repeats=values["cost_repeats"],
        decoder=decoder_options(values),
        zone_first=values["zone_first"],
        zone_last=values["zone_last"],
        cut=values["cut"],
        prefix_memory=values["prefix_memory"] * _MIB or None,
        suffix_memory=values["suffix_memory"] * _MIB or None,
    )
    restarts = RestartSettings(
        stall_s=values["stall_timeout"],
        limit=values["restart_limit"],
        pause_s=values["restart_pause"],
        forgiven=values["restart_forgiven"],
    )
    names = ("margin", "memory")
    controller = {name: values[f"cut_{name}"] for name in names}
    return HybridSettings(options, restarts, controller, values["prefix_start"] == PREFIX_STARTS[0])


def _side_of(values: Mapping[str, Any], name: str) -> tuple[str, Side]:
    return values[f"{name}_executor"], Side(_cpus(values, f"{name}_cpus"), values[f"{name}_threads"])


def _cpus(values: Mapping[str, Any], name: str) -> tuple[int, ...]:
    given: Sequence[int] = values[name]
    if list(given) == [-1]:
        return ()
    if -1 in given or len(set(given)) != len(given):
        raise ParameterError(f"{name}: got {list(given)}, expected different CPUs, or -1 alone")
    return tuple(given)
