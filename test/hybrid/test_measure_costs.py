"""Costs of the blocks of small policies: which there are, what crosses and what weighs."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_checkpoints import small_options
from spelling_policy import SpellingPolicy

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.executors.base import Executable, Late
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.partition import cut_points, partition, query_blocks
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.hybrid.measure_costs import STEPS, _transfer, held_bytes, measure_costs
from vla_simd_ros.hybrid.placement import Placement
from vla_simd_ros.hybrid.split_search import splits
from vla_simd_ros.observation import Observation


def small_act(folder: Path) -> None:
    options = Options(
        cameras=(Camera("front", 32, 32),),
        sizes={"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1},
    )
    make_checkpoint("act", folder, options)


def small_diffusion(folder: Path) -> None:
    settings = {"down_dims": [32, 64], "n_groups": 4, "num_inference_steps": 2}
    make_checkpoint("diffusion", folder, Options(cameras=(Camera("front", 32, 32),), settings=settings))


@pytest.mark.parametrize("make", [small_act, small_diffusion])
def test_every_block_is_measured_on_both_sides(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "policy")
    checkpoint = load_checkpoint(tmp_path / "policy")
    policy = instruct(checkpoint, "")
    (case,) = random_cases(checkpoint, 1, seed=0)
    said: list[str] = []
    costs = measure_costs(
        policy, case, ReferenceExecutor(np.float32), ReferenceExecutor(np.float32), 1, said.append
    )

    iterates = bool(policy.compiled.programs[Lifetime.STEP].ops)
    names = [block.name for block in costs.blocks]
    assert names == [*query_blocks(policy.compiled), *([STEPS] if iterates else [])]
    assert len(said) == len(names)
    for block in costs.blocks:
        assert block.suffix_s > 0.0
        assert math.isinf(block.prefix_s) == (block.name == STEPS)
        crossing = (
            partition(policy.compiled, block.name).boundary_bytes
            if block.name in cut_points(policy.compiled)
            else 0
        )
        assert block.boundary_bytes == crossing
    query = policy.compiled.programs[Lifetime.QUERY]
    assert sum(b.suffix_bytes for b in costs.blocks if b.name != STEPS) >= sum(
        tensor.nbytes for tensor in query.constants
    )
    assert costs.suffix_threads == 1
    assert policy.spec.type in costs.source


class Delivering:
    """An executable whose results come later."""

    def __init__(self, inner: Executable) -> None:
        self.inner = inner
        self.results: dict[str, Array] = {}
        self.calls: list[str] = []

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.calls.append("run")
        self.results = self.inner.run(lifetime, inputs)
        return self.results

    def tensor(self, tensor: Tensor) -> Array:
        return self.inner.tensor(tensor)

    def start(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> Late:
        raise AssertionError("costs are of computing and of delivering, one by one")

    def again(self, lifetime: Lifetime) -> None:
        self.calls.append("again")

    def deliver(self, lifetime: Lifetime) -> Late:
        self.calls.append("deliver")
        return self

    def wait(self) -> dict[str, Array]:
        return self.results


class DeliveringExecutor(ReferenceExecutor):
    def __init__(self) -> None:
        super().__init__(np.float32)
        self.loaded: list[Delivering] = []

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Delivering:  # type: ignore[override]
        self.loaded.append(Delivering(super().load(compiled)))
        return self.loaded[-1]


def test_what_a_device_computes_is_measured_apart_from_its_delivery(tmp_path: Path) -> None:
    small_act(tmp_path / "policy")
    checkpoint = load_checkpoint(tmp_path / "policy")
    policy = instruct(checkpoint, "")
    (case,) = random_cases(checkpoint, 1, seed=0)
    prefix = DeliveringExecutor()
    costs = measure_costs(policy, case, prefix, ReferenceExecutor(np.float32), 3)
    assert len(prefix.loaded) == len(costs.blocks)
    for executable in prefix.loaded:
        # The instruction's program, then twice the query's.
        assert executable.calls == ["run"] * 3 + ["again"] * 3 + ["deliver"] * 3
    assert costs.transfer_s >= 0.0 and costs.transfer_rate > 0.0


class PlacedExecutor(ReferenceExecutor):
    """Notes how far the thread that loads a block stands back."""

    def __init__(self) -> None:
        super().__init__(np.float32)
        self.nice: set[int] = set()

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Any:
        self.nice.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return super().load(compiled)


def test_either_side_is_measured_where_it_will_run(tmp_path: Path) -> None:
    small_act(tmp_path / "policy")
    checkpoint = load_checkpoint(tmp_path / "policy")
    (case,) = random_cases(checkpoint, 1, seed=0)
    prefix, suffix = PlacedExecutor(), PlacedExecutor()
    here, nice = tuple(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)
    places = Placement(here, min(18, nice + 1)), Placement(here, min(19, nice + 2))
    measure_costs(instruct(checkpoint, ""), case, prefix, suffix, 1, places=places)
    assert (prefix.nice, suffix.nice) == ({places[0].nice}, {places[1].nice})


def test_a_side_holds_its_weights_and_activations(tmp_path: Path) -> None:
    small_act(tmp_path / "policy")
    checkpoint = load_checkpoint(tmp_path / "policy")
    policy = instruct(checkpoint, "")
    (case,) = random_cases(checkpoint, 1, seed=0)
    costs = measure_costs(policy, case, ReferenceExecutor(np.float32), ReferenceExecutor(np.float32), 1)
    for split in splits(costs)[1:-1]:
        cut = partition(policy.compiled, split.after)
        for side, held in ((cut.prefix, split.prefix_bytes), (cut.suffix, split.suffix_bytes)):
            assert held == held_bytes(side) > side.constant_bytes
    whole = SimdExecutor(threads=1).load(policy.compiled).arena_bytes + policy.compiled.constant_bytes
    assert splits(costs)[0].suffix_bytes == pytest.approx(whole, rel=0.1)
    assert splits(costs)[-1].prefix_bytes == splits(costs)[0].suffix_bytes


def test_a_side_holds_the_keys_and_values_that_it_reads() -> None:
    compiled = compile_graph(SpellingPolicy().build(3), FoldCache())
    each = next(iter(compiled.states.values())).nbytes
    assert each == 4 * np.prod(next(iter(compiled.states.values())).shape)
    for after in cut_points(compiled):
        cut = partition(compiled, after)
        for side in (cut.prefix, cut.suffix):
            states = {use.state for program in side.programs.values() for use in program.states}
            assert held_bytes(side) > side.constant_bytes + len(states) * each
        assert len(states) == len(compiled.states), "the second side decodes"


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [
        ([(1000, 3e-5), (2000, 4e-5), (4000, 6e-5)], (2e-5, 1e8)),
        ([(1000, 1e-5), (3000, 3e-5)], (0.0, 1e8)),
    ],
)
def test_a_transfer_has_a_start_and_a_rate(
    deliveries: list[tuple[int, float]], expected: tuple[float, float]
) -> None:
    assert _transfer(deliveries, 1) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    "deliveries", [[], [(1000, math.nan)], [(1000, 1e-5), (1000, 2e-5)], [(1, 2.0), (9, 1.0)]]
)
def test_where_deliveries_tell_nothing_the_rate_is_that_of_a_copy(
    deliveries: list[tuple[int, float]],
) -> None:
    start, rate = _transfer(deliveries, 1)
    assert start >= 0.0 and math.isfinite(rate) and rate > 0.0


class Decoding:
    """A policy on the second side whose decoder takes 7 s of a clock of its own, or finds no actions."""

    action_tokens = object()

    def __init__(self, spells: bool) -> None:
        self.now, self.queries = 0.0, 0
        self._spells = spells

    def perf_counter(self) -> float:
        self.now += 1e-6  # whatever else is measured takes no time to speak of
        return self.now

    def request(self, observation: Observation) -> Any:
        return SimpleNamespace(values={})

    @property
    def executable(self) -> Any:
        return self

    def run(self, lifetime: Lifetime, values: Mapping[str, Array]) -> dict[str, Array]:
        self.now += 100.0
        self.queries += 1
        return {}

    def actions(self, steps: Any, request: Any, outputs: Mapping[str, Array]) -> None:
        self.now += 7.0
        if not self._spells:
            raise DecodingError("these tokens spell nothing")


def token_costs(folder: Path, decoding: Decoding, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], float]:
    """The names of the blocks and the seconds of the last one, on the clock of ``decoding``."""
    make_checkpoint("impact_tokens", folder, small_options("impact_tokens"))
    checkpoint = load_checkpoint(folder)
    (case,) = random_cases(checkpoint, 1, seed=0)
    monkeypatch.setattr("vla_simd_ros.hybrid.measure_costs.time", decoding)
    sides = SimdExecutor(threads=1), SimdExecutor(threads=1)
    costs = measure_costs(instruct(checkpoint, "go"), case, *sides, 3, decoding=decoding)  # type: ignore[arg-type]
    return [block.name for block in costs.blocks], costs.blocks[-1].suffix_s


def test_the_decoder_that_a_policy_will_have_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = Decoding(spells=True)
    names, seconds = token_costs(tmp_path / "policy", decoding, monkeypatch)
    assert names[-1] == STEPS
    assert seconds == pytest.approx(7.0, abs=1e-3)
    assert decoding.queries == 2 + 3


def test_tokens_that_spell_nothing_are_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = Decoding(spells=False)
    _, seconds = token_costs(tmp_path / "policy", decoding, monkeypatch)
    assert decoding.queries == 1
    assert seconds < 1e-3, "on a clock that only the decoder turns"
