"""An evaluation through the nodes: what it is asked for as parameters of nodes, and as text for a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints.execution import recommended_pacing
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.request import TASK, Request
from vla_simd_ros.evaluation.session import Condition
from vla_simd_ros.evaluation.world import EvaluationError
from vla_simd_ros.graph.int8 import FP32, INT8


@dataclass(frozen=True)
class NodeRequest:
    """What the process that starts the nodes reads.

    ``width`` and ``height`` are of the pictures that the checkpoint takes; ``config`` is the folder of the
    parameter files, ``out`` that of the nodes' logs; ``results`` the file to write, "" for none.
    """

    request: Request
    width: int
    height: int
    config: str
    out: str
    results: str = ""

    def to_json(self) -> str:
        """For the command line of the process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> NodeRequest:
        """The inverse of :meth:`to_json`."""
        values = json.loads(text)
        asked = values.pop("request")
        executions = tuple(_execution(each) for each in asked.pop("executions"))
        decoders = tuple(DecoderOptions(**each) for each in asked.pop("decoders"))
        lists = {name: tuple(asked.pop(name)) for name in ("checkpoints", "arithmetics", "instructions")}
        return cls(Request(**{**asked, **lists, "executions": executions, "decoders": decoders}), **values)


def _execution(values: Mapping[str, Any]) -> Execution:
    pacing = values["pacing"] and QueryPacing(values["pacing"])
    return Execution(**{**values, "delay": Delay(**values["delay"]), "pacing": pacing})


@dataclass(frozen=True)
class Variation:
    """A condition, and the parameters of both nodes that make it."""

    condition: Condition
    policy: Mapping[str, Any] = field(default_factory=dict)
    executor: Mapping[str, Any] = field(default_factory=dict)


def check(request: Request) -> None:
    """Raise EvaluationError for what the nodes cannot be asked for."""
    if request.world != TASK or not request.checkpoints:
        raise EvaluationError(f"the nodes run a checkpoint in the world '{TASK}' alone")
    for execution in request.executions:
        if not execution.delay.measured:
            raise EvaluationError(
                f"delay {execution.delay}: a query through the nodes takes what it takes, "
                "expected measured or measured+MS"
            )


def variations(request: Request) -> list[Variation]:
    """All conditions but the shuffling, one after the other."""
    return [
        _variation(folder, groups, decoder, execution)
        for folder in request.checkpoints
        for groups in request.arithmetics
        for decoder in request.decoders
        for execution in request.executions
    ]


def _variation(folder: str, groups: str, decoder: DecoderOptions, asked: Execution) -> Variation:
    execution = asked.paced(recommended_pacing(Path(folder)))
    added, pacing = execution.delay.milliseconds, execution.asked_pacing
    return Variation(
        Condition(
            Path(folder).name,
            INT8 if groups else FP32,
            execution,
            decoder=decoder if decoder.changed else None,
        ),
        policy={
            "checkpoint": folder,
            "precision": INT8 if groups else FP32,
            "int8": groups,
            "window": execution.horizon,
            "inject_delay": f"fixed:{added:g}" if added else "",
            "query_pacing": pacing.kind.value,
            "query_threshold": pacing.threshold,
            # All of them: a node keeps what the condition before set.
            **asdict(decoder),
        },
        executor={"mode": execution.timeline_mode.value},
    )


def told(variation: Variation, shuffled: bool) -> Condition:
    """The condition, with its instructions as they are or shuffled."""
    return replace(variation.condition, shuffled=shuffled)
