"""A step program on its own, over the states that other programs leave."""

from __future__ import annotations

import numpy as np
import pytest
from spelling_policy import SpellingPolicy

from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.graph.steps_alone import steps_alone


def test_it_reads_the_states_that_another_policy_left() -> None:
    definition = SpellingPolicy(text=False)
    cache, executor = FoldCache(), ReferenceExecutor()
    whole = executor.load(compile_graph(definition.build(), cache))
    alone = steps_alone(compile_graph(definition.build(None, 2), cache))
    assert not alone.programs[Lifetime.QUERY].ops and list(alone.inputs) == ["step_ids", "step_positions"]
    assert list(alone.constants) == list(alone.programs[Lifetime.STEP].constants)
    whole.run(Lifetime.EPISODE, {})
    whole.run(Lifetime.QUERY, {"state": np.array([[0.3, -2.0]], np.float32)})
    both = executor.load(alone).run(
        Lifetime.STEP,
        {"step_ids": np.array([7, 1], np.int32), "step_positions": np.array([1, 2], np.int32)},
    )
    for row, token in enumerate((7, 1)):
        steps = {"step_ids": np.array([token], np.int32), "step_positions": np.array([1 + row], np.int32)}
        scores = whole.run(Lifetime.STEP, steps)["scores"]
        np.testing.assert_allclose(both["scores"][row], scores[0], atol=1e-12)


def test_steps_that_read_more_than_states_are_refused() -> None:
    b = Builder()
    seen = b.input("state", (1, 3), DType.F32, Lifetime.QUERY)
    x = b.input("x", (1, 3), DType.F32, Lifetime.STEP)
    b.output("scores", b.add(x, b.activation("tanh", seen, name="seen"), name="sum"))
    with pytest.raises(GraphError, match="reads 'seen' of longer-lived ones, expected nothing but states"):
        steps_alone(compile_graph(b.graph(), FoldCache()))
