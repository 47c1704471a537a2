"""From an observation to actions that are spelled in tokens: a small policy, compared with decoding by
definition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from spelling_policy import ACTIONS, ROWS, SmallTokens, SpellingPolicy, checkpoint_with_tokenizer

from vla_simd_ros import inference
from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.decoding.action_decoder import ActionDecoder
from vla_simd_ros.decoding.base import Exit
from vla_simd_ros.decoding.decoders import DECODERS, DecoderOptions
from vla_simd_ros.executors.base import Executable, Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import DecodingError, InputError, Observation, Policy, Prefix, make_executor

STATES = np.random.default_rng(5).normal(size=(4, 2)).astype(np.float32)

Load = Callable[..., Policy]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return checkpoint_with_tokenizer(tmp_path_factory.mktemp("checkpoint") / "act")


@pytest.fixture
def load(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Load:
    def load(definition: SpellingPolicy, executor: Any = "reference", **options: Any) -> Policy:
        monkeypatch.setattr(inference, "define_policy", lambda checkpoint: definition)
        if isinstance(executor, str):
            executor = make_executor(executor, EngineSettings(threads=1 if executor == "simd" else 0))
        return Policy(checkpoint, executor, decoder=DecoderOptions(**options))

    return load


class Watched(ReferenceExecutor):
    """Notes each program that runs and each that is loaded; ``change`` may replace what a step gives."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Lifetime] = []
        self.loaded = 0
        self.change: Callable[[Array], Array] = lambda scores: scores

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Any:
        self.loaded += 1
        return _WatchedExecutable(super().load(compiled, None), self)


class _WatchedExecutable:
    def __init__(self, inner: Executable, watched: Watched) -> None:
        self._inner, self._watched = inner, watched

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._watched.runs.append(lifetime)
        outputs = self._inner.run(lifetime, inputs)
        return {name: self._watched.change(value) for name, value in outputs.items()}

    def tensor(self, tensor: Tensor) -> Array:
        return self._inner.tensor(tensor)


def seen(row: int) -> Observation:
    return Observation({}, STATES[row])


def expected(definition: SpellingPolicy, row: int, ids: list[int] | None = None) -> Array:
    given: dict[str, Array] = {"state": STATES[row : row + 1]}
    if ids is not None:
        given["token_ids"] = np.array(ids, np.int32)
    tokens = definition.greedy(given, None if ids is None else len(ids))
    return np.array(tokens, np.float32).reshape(ROWS, ACTIONS) / 10


@pytest.mark.parametrize("executor", ["reference", "simd"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_gives_the_actions_of_the_greedy_tokens(
    load: Load, checkpoint: Checkpoint, executor: str, decoder: str
) -> None:
    """Query after query, with instructions of other lengths between: what went before leaves no trace."""
    definition = SpellingPolicy(seed=1)
    policy = load(definition, executor, decoder=decoder, sigma=1.0)
    for row, text in enumerate(("go", "put the cube into the bowl", "stop", "go")):
        policy.set_instruction(text)
        ids = checkpoint.tokenizer().encode(text)
        query = policy.query(seen(row))
        np.testing.assert_array_equal(query.actions, expected(definition, row, list(ids)))
        assert query.actions.dtype == np.float32
        assert query.decoded is not None and query.decoded.exact and query.decoded.converged


@pytest.mark.parametrize("block", [2, 3, 0])
@pytest.mark.parametrize("initialization", ["random", "repeat"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_block_nor_first_guess_changes_a_token(
    load: Load, seed: int, initialization: str, block: int
) -> None:
    definition = SpellingPolicy(text=False, seed=seed)
    options = {"block": block, "initialization": initialization, "decoder_seed": seed + 7}
    policy = load(definition, "simd", decoder="jacobi", **options)
    for row in range(3):
        np.testing.assert_array_equal(policy.query(seen(row)).actions, expected(definition, row))


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_prefix_is_computed_once_per_query(load: Load, decoder: str) -> None:
    watched = Watched()
    policy = load(SpellingPolicy(), watched, decoder=decoder)
    policy.set_instruction("go")
    policy.warm_up()
    for row in range(3):
        watched.runs.clear()
        decoded = policy.query(seen(row)).decoded
        assert decoded is not None
        assert watched.runs == [Lifetime.QUERY] + [Lifetime.STEP] * len(decoded.passes)


@pytest.mark.parametrize("decoder", DECODERS)
def test_nothing_is_compiled_after_warming_up(load: Load, decoder: str) -> None:
    watched = Watched()
    policy = load(SpellingPolicy(), watched, decoder=decoder, block=4)
    policy.set_instruction("go")
    policy.warm_up()
    loaded = watched.loaded
    assert loaded == (1 if decoder == "autoregressive" else 4)
    for row in range(4):
        policy.query(seen(row))
    assert watched.loaded == loaded


def test_relative_actions_are_added_to_the_observed_state(load: Load) -> None:
    definition = SpellingPolicy(text=False, relative=True)
    actions = load(definition, "simd").query(seen(2)).actions
    np.testing.assert_array_equal(actions, expected(definition, 2) + STATES[2])


def test_early_exit_takes_what_is_sure_enough(load: Load) -> None:
    definition = SpellingPolicy(text=False, seed=3)
    policy = load(definition, decoder="early_exit", sigma=1e-6, decoder_seed=5)
    decoded = policy.query(seen(0)).decoded
    assert decoded is not None and decoded.exit is Exit.CONFIDENT and len(decoded.passes) == 1
    assert len(decoded.tokens) == ROWS * ACTIONS and not decoded.exact and decoded.converged
    policy.set_decoder("early_exit", sigma=1.0)
    np.testing.assert_array_equal(policy.query(seen(0)).actions, expected(definition, 0))


def test_a_deadline_and_a_number_of_passes_end_a_query(load: Load) -> None:
    definition = SpellingPolicy(text=False, seed=3)
    policy = load(definition, decoder="jacobi")
    late = policy.query(seen(0), deadline=-math.inf)
    assert late.decoded is not None and late.decoded.exit is Exit.DEADLINE and not late.decoded.converged
    assert late.actions.shape == (ROWS, ACTIONS), "a guess for every token"
    policy.set_decoder("autoregressive", max_passes=3)
    short = policy.query(seen(0))
    assert short.decoded is not None and short.decoded.exit is Exit.MAX_PASSES
    np.testing.assert_array_equal(short.actions, expected(definition, 0)[:1])
    policy.set_decoder()
    np.testing.assert_array_equal(policy.query(seen(0)).actions, expected(definition, 0))


def test_passes_end_at_the_deadline_on_the_clock() -> None:
    """Each reading of the clock is a second later."""
    definition = SpellingPolicy(text=False, seed=3)
    now = iter(range(1000))
    executor: Executor = Watched()
    programs = inference.LoadedPrograms(definition, executor, "")
    options = DecoderOptions("autoregressive")
    decoder = ActionDecoder(
        definition.spec, definition.action_tokens, programs.passes, options, lambda: float(next(now))
    )
    executable = programs.executable(None)
    values = {"state": STATES[:1]}
    executable.run(Lifetime.EPISODE, {})
    executable.run(Lifetime.QUERY, values)
    # Before each pass but the first the clock is read, and at its beginning and end.
    actions, decoded = decoder.run(executable, decoder.plan(values, None, deadline=9.0))
    assert decoded.exit is Exit.DEADLINE and len(decoded.passes) == 4
    np.testing.assert_array_equal(actions, expected(definition, 0)[:2])


def test_a_token_that_ends_the_chunk(load: Load) -> None:
    plain = SpellingPolicy(text=False, seed=1)
    tokens = plain.greedy({"state": STATES[:1]})
    stop = frozenset([tokens[3]])
    definition = SpellingPolicy(text=False, seed=1, action_tokens=SmallTokens(stop=stop))
    query = load(definition, decoder="jacobi").query(seen(0))
    assert query.decoded is not None and query.decoded.exit is Exit.STOP_TOKEN
    end = tokens.index(tokens[3]) + 1
    assert list(query.decoded.tokens) == tokens[:end]
    assert len(query.actions) == end // ACTIONS


@pytest.mark.parametrize("decoder", DECODERS)
def test_scores_that_are_not_finite(load: Load, decoder: str) -> None:
    watched = Watched()
    definition = SpellingPolicy(text=False)
    policy = load(definition, watched, decoder=decoder)
    watched.change = lambda scores: np.where(scores == scores[-1].max(), np.nan, scores)
    with pytest.raises(DecodingError, match=r"the scores of token \d are not finite"):
        policy.query(seen(0))
    watched.change = lambda scores: scores
    np.testing.assert_array_equal(policy.query(seen(1)).actions, expected(definition, 1))


def test_tokens_that_are_no_actions(load: Load) -> None:
    policy = load(SpellingPolicy(text=False, action_tokens=SmallTokens(bins=0)))
    for _ in range(2):
        with pytest.raises(DecodingError, match=r"token \d+ at place 0: expected one of 0 bins"):
            policy.query(seen(0))


def test_what_a_policy_of_tokens_cannot_be_given(load: Load) -> None:
    policy = load(SpellingPolicy(text=False))
    noise = np.zeros((1, 1), np.float32)
    for name, value in (("noise", noise), ("num_steps", 3), ("prefix", Prefix(noise, 1))):
        with pytest.raises(InputError, match=f"'spelling' has no solver, it takes no {name}"):
            policy.query(seen(0), **{name: value})
    with pytest.raises(InputError, match="deadline is nan, expected a time in seconds"):
        policy.query(seen(0), deadline=math.nan)
    assert policy.solver is None and policy.action_tokens is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder": "greedy"}, "decoder 'greedy' is unknown, expected one of autoregressive, jacobi"),
        ({"decoder": "early_exit", "sigma": 0.0}, "sigma is 0, expected a probability above 0"),
        ({"decoder": "early_exit", "sigma": 1.5}, r"sigma is 1\.5, expected a probability"),
        ({"max_passes": -1}, "max_passes is -1, expected 1 or more, or 0 for no limit"),
        ({"block": -2}, "block is -2, expected 1 or more tokens"),
        ({"initialization": "ones"}, "initialization 'ones' is unknown, expected one of random, repeat"),
    ],
)
def test_a_decoder_that_does_not_exist(load: Load, options: dict[str, Any], message: str) -> None:
    definition = SpellingPolicy(text=False)
    policy = load(definition, decoder="jacobi")
    with pytest.raises(DecodingError, match=message):
        policy.set_decoder(**{"decoder": "jacobi", **options})
    assert policy.decoder == DecoderOptions("jacobi")
    np.testing.assert_array_equal(policy.query(seen(0)).actions, expected(definition, 0))
    with pytest.raises(DecodingError, match=message):
        load(definition, **options)


def test_a_policy_without_tokens_has_no_decoder(checkpoint: Checkpoint) -> None:
    policy = Policy.load(checkpoint.folder, executor="reference", decoder="auto")
    assert policy.decoder is None and policy.action_tokens is None
    with pytest.raises(InputError, match="decoder is jacobi, but the policy 'act' decodes no tokens"):
        policy.set_decoder("jacobi")
    with pytest.raises(InputError, match=r"sigma is 0\.7, but the policy 'act' decodes no tokens"):
        Policy.load(checkpoint.folder, executor="reference", sigma=0.7)
    with pytest.raises(InputError, match="the policy 'act' decodes no tokens, it takes no deadline"):
        policy.query(policy.blank_observation(), deadline=1.0)
    assert policy.query(policy.blank_observation()).decoded is None
