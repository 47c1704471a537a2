from __future__ import annotations

import numpy as np
import pytest
from small_policy import INPUTS, NOISE, STATE, small_graph, small_policy

from vla_simd_ros.executors.base import InputError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES


def test_programs_give_what_the_graph_gives() -> None:
    graph = small_graph()
    values = run_graph(graph, {name: v for inputs in INPUTS.values() for name, v in inputs.items()})
    executable = ReferenceExecutor().load(small_policy())
    results = {}
    for lifetime in RUNTIME_LIFETIMES:
        results |= executable.run(lifetime, INPUTS[lifetime])
    assert results.keys() == {"prefix", "action"}
    for name, result in results.items():
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, values[graph.outputs[name]], rtol=1e-5, atol=1e-6)


def test_it_can_compute_in_float32() -> None:
    executable = ReferenceExecutor(np.float32).load(small_policy())
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    assert executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])["prefix"].dtype == np.float32


def test_results_are_copies() -> None:
    executable = ReferenceExecutor().load(small_policy())
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    first = executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])["prefix"]
    kept = first.copy()
    first[:] = np.nan
    np.testing.assert_array_equal(executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])["prefix"], kept)


def test_programs_need_what_they_build_on() -> None:
    policy = small_policy()
    executable = ReferenceExecutor().load(policy)
    with pytest.raises(RuntimeError, match="the QUERY program uses results of EPISODE"):
        executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
    executable.run(Lifetime.STEP, INPUTS[Lifetime.STEP])
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    with pytest.raises(RuntimeError, match="the STEP program uses results of QUERY"):
        executable.run(Lifetime.STEP, INPUTS[Lifetime.STEP])


def test_provided_tensors_and_constants_can_be_read() -> None:
    policy = small_policy()
    executable = ReferenceExecutor().load(policy)
    text = policy.programs[Lifetime.QUERY].uses[0]
    with pytest.raises(KeyError, match="the EPISODE program has not run"):
        executable.tensor(text)
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    assert executable.tensor(text).shape == text.shape
    constant, value = next(iter(policy.constants.items()))
    np.testing.assert_array_equal(executable.tensor(constant), value.array())
    hidden = policy.programs[Lifetime.EPISODE].ops[0].output
    with pytest.raises(KeyError):
        executable.tensor(hidden)


def test_wrong_inputs_are_refused() -> None:
    executable = ReferenceExecutor().load(small_policy())
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    with pytest.raises(InputError, match="QUERY input 'image' is missing"):
        executable.run(Lifetime.QUERY, {"state": STATE})
    with pytest.raises(InputError, match="QUERY input 'noise' is unknown"):
        executable.run(Lifetime.QUERY, {**INPUTS[Lifetime.QUERY], "noise": NOISE})
