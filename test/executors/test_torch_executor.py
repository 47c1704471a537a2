from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_policy import INPUTS, int8_policy, small_policy

from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES

pytestmark = pytest.mark.needs_torch


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


def outputs(executable: Any) -> dict[str, np.ndarray]:
    results: dict[str, np.ndarray] = {}
    for lifetime in RUNTIME_LIFETIMES:
        results |= executable.run(lifetime, INPUTS[lifetime])
    return results


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_it_agrees_with_the_reference(torch: Any, dtype: str, tolerance: float) -> None:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    policy = small_policy()
    expected = outputs(ReferenceExecutor().load(policy))
    got = outputs(TorchExecutor(getattr(torch, dtype)).load(policy))
    assert got.keys() == expected.keys()
    for name, value in got.items():
        assert value.dtype == np.dtype(dtype)
        np.testing.assert_allclose(value, expected[name], rtol=tolerance, atol=tolerance)


def test_int8_layers_agree_with_the_reference(torch: Any) -> None:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    exact, policy = outputs(ReferenceExecutor().load(small_policy())), int8_policy()
    expected = outputs(ReferenceExecutor().load(policy))
    for name, value in outputs(TorchExecutor(torch.float64).load(policy)).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-12)
        assert 1e-4 < np.abs(value - exact[name]).max() < 0.3 * np.abs(exact[name]).max()


def test_int8_weights_are_quantized_once_and_shared(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vla_simd_ros.executors import torch_executor
    from vla_simd_ros.executors.torch_int8 import int8_weight

    quantized = []

    def count(weight: Any, dtype: Any) -> Any:
        quantized.append(tuple(weight.shape))
        return int8_weight(weight, dtype)

    monkeypatch.setattr(torch_executor, "int8_weight", count)
    executor, policy = torch_executor.TorchExecutor(), int8_policy()
    first, second = executor.load(policy), executor.load(policy)
    once = list(quantized)
    assert once
    for executable in (first, second, first):
        outputs(executable)
    assert quantized == once


def test_a_module_takes_inputs_then_cached_tensors(torch: Any) -> None:
    from vla_simd_ros.executors.torch_executor import ProgramModule, TorchExecutor

    policy = small_policy()
    executable = TorchExecutor().load(policy)
    executable.run(Lifetime.EPISODE, INPUTS[Lifetime.EPISODE])
    program = policy.programs[Lifetime.QUERY]
    arguments = [INPUTS[Lifetime.QUERY][name] for name in program.inputs]
    arguments += [executable.tensor(tensor) for tensor in program.uses]
    module = ProgramModule(program, policy.constants, tuple(program.outputs.values())).eval()
    results = module(*(torch.from_numpy(a) for a in arguments))
    assert len(results) == len(program.outputs)
    expected = executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])["prefix"]
    np.testing.assert_allclose(results[0].numpy(), expected, rtol=1e-6, atol=1e-6)


def test_programs_need_what_they_build_on(torch: Any) -> None:
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    policy = small_policy()
    executable = TorchExecutor().load(policy)
    with pytest.raises(RuntimeError, match="the QUERY program uses results of EPISODE"):
        executable.run(Lifetime.QUERY, INPUTS[Lifetime.QUERY])
    with pytest.raises(KeyError, match="has not run"):
        executable.tensor(policy.programs[Lifetime.QUERY].uses[0])


def test_images_between_programs_keep_the_graph_s_layout(torch: Any) -> None:
    """A feature map that a shorter-lived program reads is [H, W, C] on both sides."""
    from vla_simd_ros.executors.torch_executor import TorchExecutor
    from vla_simd_ros.graph.builder import Builder
    from vla_simd_ros.graph.compile import compile_graph
    from vla_simd_ros.graph.fold_cache import FoldCache
    from vla_simd_ros.graph.ir import DType

    b = Builder()
    x = b.input("x", (4, 5, 3), DType.F32, Lifetime.QUERY)
    y = b.activation("relu", x, name="map")
    z = b.input("z", (4, 5, 3), DType.F32, Lifetime.STEP)
    joined = b.concat([b.add(y, z, name="sum"), y], axis=2, name="joined")
    b.output("out", b.slice(joined, axis=1, start=1, stop=4, name="out"))
    b.output("rows", b.reshape(b.reshape(joined, (20, 6), name="rows"), (4, 5, 6), name="back"))
    policy = compile_graph(b.graph(), FoldCache())
    rng = np.random.default_rng(0)
    values = {n: rng.normal(size=(4, 5, 3)).astype(np.float32) for n in "xz"}
    results = []
    for executor in (ReferenceExecutor(), TorchExecutor(torch.float64)):
        executable = executor.load(policy)
        executable.run(Lifetime.QUERY, {"x": values["x"]})
        results.append(executable.run(Lifetime.STEP, {"z": values["z"]}))
    for name in ("out", "rows"):
        np.testing.assert_allclose(results[1][name], results[0][name])


def test_every_operation_agrees_with_the_reference(torch: Any) -> None:
    from operation_samples import SAMPLES, sample_policy

    from vla_simd_ros.executors.torch_executor import TorchExecutor

    for name in SAMPLES:
        policy, inputs = sample_policy(name)
        expected = ReferenceExecutor().load(policy).run(Lifetime.QUERY, inputs)["y"]
        got = TorchExecutor(torch.float64).load(policy).run(Lifetime.QUERY, inputs)["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12, err_msg=name)
