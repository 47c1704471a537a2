"""An evaluation as parameters of the nodes, and its way to their process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.request import Request
from vla_simd_ros.evaluation.through_nodes import NodeRequest, check, told, variations
from vla_simd_ros.evaluation.world import EvaluationError
from vla_simd_ros.sim.demo_policy import TRAINED

TRUE = Delay(measured=True)
REQUEST = Request(
    checkpoints=("/policies/impact",),
    arithmetics=("", "encoder.ffn"),
    decoders=(DecoderOptions("early_exit", sigma=0.7),),
    executions=(
        Execution("time_aligned", 20, 8, TRUE),
        Execution("synchronous", delay=Delay(150.0, measured=True)),
    ),
    episodes=12,
    first_seed=3,
    instructions=("put the red cube on the left pad",),
    shuffle="only",
    seconds=9.5,
    settings="default",
    changes={"threads": 1},
)
STEADY = Execution(delay=TRUE, pacing=QueryPacing.CONTINUOUS)


def test_the_request_arrives_as_it_was_sent() -> None:
    request = replace(REQUEST, executions=(*REQUEST.executions, STEADY))
    asked = NodeRequest(request, 128, 96, "/config", "/logs", "/results.json")
    assert NodeRequest.from_json(asked.to_json()) == asked


def test_conditions_become_parameters() -> None:
    found = variations(REQUEST)
    assert [str(each.condition.arithmetic) for each in found] == ["fp32", "fp32", "int8", "int8"]
    aligned, waiting = found[2], found[3]
    assert aligned.policy == {
        "checkpoint": "/policies/impact",
        "precision": "int8",
        "int8": "encoder.ffn",
        "window": 20,
        "inject_delay": "",
        "query_pacing": "on_demand",
        "query_threshold": 8,
        "decoder": "early_exit",
        "sigma": 0.7,
        "max_passes": 0,
        "block": 0,
        "initialization": "random",
        "decoder_seed": 0,
    }
    assert aligned.executor == {"mode": "time_aligned"}
    assert waiting.executor == {"mode": "lagged"}
    assert (waiting.policy["query_pacing"], waiting.policy["query_threshold"]) == ("on_demand", 0)
    assert waiting.policy["inject_delay"] == "fixed:150"
    assert waiting.policy["window"] == 0


def test_queries_start_as_the_checkpoint_says_unless_asked_otherwise() -> None:
    request = Request(checkpoints=("a", str(TRAINED)), executions=(Execution(delay=TRUE), STEADY))
    found, *_ = paced = variations(request)
    assert [(each.policy["query_pacing"], each.policy["query_threshold"]) for each in paced[:3]] == [
        ("continuous", 10), ("continuous", 10), ("on_demand", 4)
    ]  # fmt: skip
    assert paced[3].policy["query_pacing"] == "continuous"
    assert paced[2].condition.execution == Execution(delay=TRUE, threshold=4, pacing=QueryPacing.ON_DEMAND)
    assert told(found, shuffled=True).shuffled and not found.condition.shuffled


def test_a_condition_leaves_no_decoder_to_the_next_one() -> None:
    """Nodes keep parameters that are not set."""
    decoders = (DecoderOptions("early_exit", sigma=0.3, block=6), DecoderOptions())
    request = Request(checkpoints=("a",), decoders=decoders, executions=(STEADY,))
    before, after = (each.policy for each in variations(request))
    assert before.keys() == after.keys()
    assert (after["decoder"], after["sigma"], after["block"]) == ("auto", 0.5, 0)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(), "the nodes run a checkpoint in the world 'task' alone"),
        (Request(world="libero-goal", checkpoints=("a",)), "the nodes run a checkpoint"),
        (
            Request(checkpoints=("a",), executions=(Execution(delay=Delay(150.0)),)),
            r"delay 150 ms: a query through the nodes takes what it takes, expected measured or measured\+MS",
        ),
    ],
)
def test_what_the_nodes_cannot_be_asked_for(request_: Request, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        check(request_)
