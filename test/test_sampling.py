"""Policies that iterate, from the observation to the actions: a small one, compared with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iterating_policy import ACTIONS, ROWS, SIDE, STATE, WIDTH, IteratingPolicy, expected_actions
from small_act import SMALL
from small_spiece import corpus, train

from vla_simd_ros import inference
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.reference_executor import ReferenceExecutable, ReferenceExecutor
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import Cancelled, InputError, Observation, Policy, Prefix, make_executor

RNG = np.random.default_rng(3)
IMAGE = RNG.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
VECTOR = RNG.normal(size=STATE).astype(np.float32)
SEEN = Observation({"front": IMAGE}, VECTOR)
NOISE = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32)
GIVEN = RNG.normal(size=(ROWS, ACTIONS)).astype(np.float32)

Load = Callable[..., Policy]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of any type with a tokenizer: what is loaded from it is the small policy."""
    made = tmp_path_factory.mktemp("checkpoint") / "act"
    make_checkpoint("act", made, Options(cameras=(Camera("front", 32, 32),), sizes=SMALL))
    (made / "spiece.model").write_bytes(train(corpus(), 200))
    return made


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    def load(definition: IteratingPolicy | None = None, executor: Any = "reference", **given: Any) -> Policy:
        monkeypatch.setattr(inference, "define_policy", lambda checkpoint: definition or IteratingPolicy())
        if isinstance(executor, str):
            settings = EngineSettings(threads=1 if executor == "simd" else 0)
            executor = make_executor(executor, settings)
        return Policy(load_checkpoint(folder), executor, **given)

    return load


class CountingExecutor(ReferenceExecutor):
    """Counts the operations that it runs, by lifetime, and calls ``before`` with each program to run."""

    def __init__(self, before: Callable[[Lifetime], None] = lambda lifetime: None) -> None:
        super().__init__()
        self.operations: dict[Lifetime, int] = dict.fromkeys(Lifetime, 0)
        self.programs: dict[Lifetime, int] = {}
        self.before = before

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> ReferenceExecutable:
        counting = self
        self.programs = {lifetime: len(program.ops) for lifetime, program in compiled.programs.items()}

        class Counted(ReferenceExecutable):
            def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
                counting.before(lifetime)
                outputs = super().run(lifetime, inputs)
                counting.operations[lifetime] += counting.programs[lifetime]
                return outputs

        return Counted(compiled, np.dtype(np.float64), self._cancelled, self._states)


@pytest.mark.parametrize("executor", ["reference", "simd"])
@pytest.mark.parametrize("count", [None, 2, 6])
def test_the_step_program_is_repeated(load: Load, executor: str, count: int | None) -> None:
    policy = load(executor=executor)
    actions = policy.query(SEEN, noise=NOISE, num_steps=count).actions
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, expected_actions(IMAGE, VECTOR, NOISE, count or 4), atol=2e-6)


def test_the_prefix_is_computed_once_and_the_number_of_steps_may_change(load: Load) -> None:
    executor = CountingExecutor()
    definition = IteratingPolicy()
    policy = load(definition, executor)
    assert min(executor.programs[lifetime] for lifetime in (Lifetime.QUERY, Lifetime.STEP)) > 0
    for queries, (count, total) in enumerate(((6, 6), (2, 8), (None, 12), (6, 18)), 1):
        policy.query(SEEN, num_steps=count)
        assert executor.operations[Lifetime.QUERY] == queries * executor.programs[Lifetime.QUERY]
        assert executor.operations[Lifetime.STEP] == total * executor.programs[Lifetime.STEP]
    assert definition.solver.asked == [6, 2, 4], "the inputs of a known number of steps are kept"


def test_an_instruction_is_not_computed_again(folder: Path, load: Load) -> None:
    executor = CountingExecutor()
    policy = load(IteratingPolicy(text=True), executor)
    policy.set_instruction("go")
    ids = load_checkpoint(folder).tokenizer().encode("go")
    for _ in range(2):
        actions = policy.query(SEEN, noise=NOISE).actions
        np.testing.assert_allclose(actions, expected_actions(IMAGE, VECTOR, NOISE, 4, ids=ids), atol=2e-6)
    assert executor.operations[Lifetime.EPISODE] == executor.programs[Lifetime.EPISODE] > 0


@pytest.mark.parametrize("executor", ["reference", "simd"])
def test_noise_for_every_step(load: Load, executor: str) -> None:
    noise = RNG.normal(size=(1 + 6, ROWS, WIDTH)).astype(np.float32)
    policy = load(IteratingPolicy(noise_per_step=True), executor)
    actions = policy.query(SEEN, noise=noise, num_steps=6).actions
    np.testing.assert_allclose(actions, expected_actions(IMAGE, VECTOR, noise, 6), atol=2e-6)
    with pytest.raises(
        InputError, match=r"got shape \[7, 4, 3\], expected \[5, 4, 3\] \(the first sample, th"
    ):
        policy.query(SEEN, noise=noise)


@pytest.mark.parametrize("noise_per_step", [False, True])
def test_the_same_seed_gives_the_same_actions(load: Load, noise_per_step: bool) -> None:
    def actions(seed: int | None) -> list[Array]:
        policy = load(IteratingPolicy(noise_per_step=noise_per_step), seed=seed)
        policy.warm_up()  # draws nothing
        return [policy.query(SEEN).actions for _ in range(2)]

    first, second = actions(3), actions(3)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0] - first[1]).max() > 1e-3, "each query draws its own"
    assert np.abs(first[0] - actions(4)[0]).max() > 1e-3
    assert np.abs(actions(None)[0] - actions(None)[0]).max() > 1e-3


@pytest.mark.parametrize("noise_per_step", [False, True])
def test_a_seed_stands_for_the_noise_of_a_query(load: Load, noise_per_step: bool) -> None:
    policy = load(IteratingPolicy(noise_per_step=noise_per_step), seed=1)
    noise = policy.noise(5, 6)
    assert noise.shape == ((7, ROWS, WIDTH) if noise_per_step else (ROWS, WIDTH))
    np.testing.assert_array_equal(policy.noise(5, 6), noise)
    assert np.abs(policy.noise(6, 6) - noise).max() > 0.1
    actions = policy.query(SEEN).actions
    again = load(IteratingPolicy(noise_per_step=noise_per_step), seed=1)
    np.testing.assert_array_equal(again.query(SEEN).actions, actions)
    with pytest.raises(InputError, match="num_steps is 3: expected an even number"):
        policy.noise(5, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_steps": 0}, "num_steps is 0, expected a whole number, 1 or more"),
        ({"num_steps": -2}, "num_steps is -2, expected"),
        ({"num_steps": 2.0}, r"num_steps is 2\.0, expected"),
        ({"num_steps": True}, "num_steps is True, expected"),
        ({"num_steps": 3}, "num_steps is 3: expected an even number"),
        ({"noise": NOISE[1:]}, r"noise: got shape \[3, 3\], expected \[4, 3\]$"),
        ({"noise": NOISE.astype(np.int64)}, "noise: got int64, expected floating-point values"),
        (
            {"noise": np.where(np.arange(12).reshape(4, 3) == 7, np.nan, NOISE)},
            "noise: value 1 of row 2 is nan, expected a finite number",
        ),
        ({"prefix": Prefix(GIVEN, 1)}, "the policy 'iterating' takes no prefix"),
    ],
)
def test_what_a_query_cannot_be_given_is_named(load: Load, given: dict[str, Any], message: str) -> None:
    policy = load()
    with pytest.raises(InputError, match=message):
        policy.query(SEEN, **given)
    policy.query(SEEN)


def test_a_policy_of_one_pass_takes_none_of_it(folder: Path) -> None:
    policy = Policy.load(folder, executor="reference")
    for name, value in (("noise", NOISE), ("num_steps", 3), ("prefix", Prefix(GIVEN, 1))):
        with pytest.raises(InputError, match=f"'act' has no solver, it takes no {name}"):
            policy.query(policy.blank_observation(), **{name: value})
    with pytest.raises(InputError, match="'act' has no solver, it takes no noise"):
        policy.noise(0)
    with pytest.raises(InputError, match="seed is 3, but the policy 'act' draws no noise"):
        Policy.load(folder, executor="reference", seed=3)
    assert policy.solver is None


def test_cancelling_ends_the_steps(load: Load) -> None:
    steps = []

    def before(lifetime: Lifetime) -> None:
        if lifetime is Lifetime.STEP:
            steps.append(lifetime)
            if len(steps) == 2:
                policy.cancel()

    policy = load(executor=CountingExecutor(before))
    with pytest.raises(Cancelled):
        policy.query(SEEN, noise=NOISE)
    assert len(steps) == 2
    policy.resume()
    actions = policy.query(SEEN, noise=NOISE).actions
    np.testing.assert_allclose(actions, expected_actions(IMAGE, VECTOR, NOISE, 4), atol=2e-6)


def test_warming_up_runs_every_program_once(load: Load) -> None:
    executor = CountingExecutor()
    load(executor=executor).warm_up()
    assert executor.operations == {**executor.programs, Lifetime.PROCESS: 0}


def test_times_of_the_steps(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((1_000_000, 3_000_000, 13_000_000, 43_000_000, 43_500_000))
    policy = load()
    monkeypatch.setattr(inference, "time", type("Clock", (), {"perf_counter_ns": lambda: next(ticks)}))
    timing = policy.query(SEEN).timing
    assert (timing.preprocess_ms, timing.query_ms, timing.step_ms) == (2.0, 10.0, 30.0)
    assert (timing.postprocess_ms, timing.total_ms) == (0.5, 42.5)


@pytest.mark.parametrize("executor", ["reference", "simd"])
def test_several_observations_make_a_query(load: Load, executor: str) -> None:
    policy = load(IteratingPolicy(observation_steps=2), executor)
    images = np.stack([IMAGE, 255 - IMAGE])
    states = np.stack([VECTOR, -2 * VECTOR])
    results = []
    for mask in ([1, 1], [0, 1]):
        seen = Observation({"front": images}, states, valid=np.array(mask, np.bool_))
        results.append(policy.query(seen, noise=NOISE).actions)
        expected = expected_actions(images, states, NOISE, 4, mask=np.array(mask))
        np.testing.assert_allclose(results[-1], expected, atol=2e-6)
    np.testing.assert_array_equal(
        policy.query(Observation({"front": images}, states), noise=NOISE).actions, results[0]
    )


@pytest.mark.parametrize("executor", ["reference", "simd"])
def test_rows_of_the_previous_chunk_draw_the_next_one(load: Load, executor: str) -> None:
    policy = load(IteratingPolicy(prefix=True), executor)
    free = policy.query(SEEN, noise=NOISE).actions
    np.testing.assert_allclose(free, expected_actions(IMAGE, VECTOR, NOISE, 4), atol=2e-6)
    rows = np.zeros((ROWS, ACTIONS))
    rows[:3] = GIVEN[:3]
    for prefix, weights in (
        (Prefix(GIVEN[:3], 1, horizon=3, schedule="linear"), [1, 0.5, 0.5, 0]),
        (Prefix(GIVEN[:3], 1, horizon=2), [1, 1, 0, 0]),
        (Prefix(GIVEN[:3], 1, horizon=2, schedule="linear"), [1, 0.5, 0, 0]),
        (Prefix(GIVEN[:3], 3, horizon=2, schedule="linear"), [1, 1, 0, 0]),
        (Prefix(GIVEN[:3], 0, horizon=9, max_guidance_weight=0.4), [1, 1, 1, 0]),
    ):
        most = prefix.max_guidance_weight or 0.7
        expected = expected_actions(IMAGE, VECTOR, NOISE, 4, prefix=(rows, np.array(weights)[:, None], most))
        actions = policy.query(SEEN, noise=NOISE, prefix=prefix).actions
        np.testing.assert_allclose(actions, expected, atol=4e-6)
        assert np.abs(actions - free).max() > 1e-2
    np.testing.assert_array_equal(policy.query(SEEN, noise=NOISE).actions, free)


def test_what_a_prefix_does_not_say_is_as_the_checkpoint_has_it(load: Load) -> None:
    """Three rows, all of the same weight, by at most 0.7; see SmallSolver."""
    policy = load(IteratingPolicy(prefix=True))
    weights = np.array([[1], [1], [1], [0]])
    actions = policy.query(SEEN, noise=NOISE, prefix=Prefix(GIVEN, 1)).actions
    for most, equal in ((0.7, True), (10.0, False)):
        expected = expected_actions(IMAGE, VECTOR, NOISE, 4, prefix=(GIVEN, weights, most))
        assert bool(np.abs(actions - expected).max() < 4e-6) is equal


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (Prefix(GIVEN[:, :1], 1), r"prefix: got shape \[4, 1\], expected \[1 to 4, 2\]"),
        (Prefix(GIVEN[:0], 0), r"prefix: got shape \[0, 2\], expected"),
        (Prefix(GIVEN[:2], 3), "prefix: 3 of 2 rows are frozen, expected 0 to all"),
        (Prefix(GIVEN, -1), "prefix: -1 of 4 rows are frozen"),
        (Prefix(GIVEN, 1, horizon=0), "prefix: horizon is 0, expected 1 or more"),
        (Prefix(GIVEN, 1, schedule=""), "prefix: schedule '' is unknown, expected one of ones, linear"),
        (Prefix(GIVEN, 1, schedule="exp"), "schedule 'exp' is unknown, expected one of ones, linear"),
        (Prefix(GIVEN, 1, max_guidance_weight=0.0), r"max_guidance_weight is 0\.0, expected a finite number"),
        (Prefix(GIVEN * np.inf, 1), "prefix: value 0 of row 0 is -?inf, expected a finite number"),
    ],
)
def test_a_prefix_that_does_not_fit_is_named(load: Load, prefix: Prefix, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(IteratingPolicy(prefix=True)).query(SEEN, prefix=prefix)
