"""A policy as two stages: every cut, every decoder, instructions of any length, cuts readied one by one."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from spelling_policy import SpellingPolicy, checkpoint_with_tokenizer

from vla_simd_ros import inference
from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.decoding.decoders import DECODERS, DecoderOptions
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.partition import cut_points, partition
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.hybrid.hybrid_policy import HybridPolicy
from vla_simd_ros.hybrid.placement import Placement
from vla_simd_ros.hybrid.split_executor import SplitExecutable, SplitExecutor
from vla_simd_ros.inference import Observation, Policy, Query

ANYWHERE = Placement(tuple(sorted(os.sched_getaffinity(0))))
STATES = np.random.default_rng(5).normal(size=(6, 2)).astype(np.float32)
TEXTS = ("go", "put the cube into the bowl", "stop", "go")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return checkpoint_with_tokenizer(tmp_path_factory.mktemp("checkpoint") / "act")


class Loading(SimdExecutor):
    """Notes the parts of a query that it loaded, in blocks, and those whose episode program has run."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.loaded: list[int] = []

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> Any:
        self.loaded.append(len({op.block for op in compiled.programs[Lifetime.QUERY].ops}))
        return super().load(compiled, beside)


class Split:
    """The small policy on two engines, cut where ``cut`` says, and the same whole."""

    def __init__(self, checkpoint: Checkpoint, options: DecoderOptions) -> None:
        compiled = compile_graph(SpellingPolicy(seed=1).build(3), FoldCache())
        self.names = cut_points(compiled)
        self.cut = 1
        self.sides = Loading(), Loading()
        cuts = dict(enumerate(self.names, start=1))
        executor = SplitExecutor(*self.sides, self.names, lambda: cuts[self.cut])
        policy = Policy(checkpoint, executor, decoder=options)
        self.ended: list[tuple[int, float]] = []
        self.hybrid = HybridPolicy(
            policy,
            cuts,
            lambda: self.cut,
            (ANYWHERE, ANYWHERE),
            lambda blocks, took_s: self.ended.append((blocks, took_s)),
        )
        self.whole = Policy(checkpoint, SimdExecutor(threads=1), decoder=options)

    def instruct(self, text: str) -> None:
        for policy in (self.hybrid.policy, self.whole):
            policy.set_instruction(text)

    def query(self, row: int) -> tuple[int, Query]:
        """The blocks of the prefix, and what the stages gave: it is what the whole policy gives."""
        seen = Observation({}, STATES[row])
        answer, expected = self.hybrid.suffix(self.hybrid.prefix(seen)), self.whole.query(seen)
        np.testing.assert_array_equal(answer.query.actions, expected.actions)
        assert answer.query.decoded is not None and expected.decoded is not None
        assert answer.query.decoded.tokens == expected.decoded.tokens
        return answer.blocks, answer.query


@pytest.fixture
def split(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Split]:
    def make(**options: Any) -> Split:
        monkeypatch.setattr(inference, "define_policy", lambda checkpoint: SpellingPolicy(seed=1))
        return Split(checkpoint, DecoderOptions(**options))

    return make


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_cut_gives_the_tokens_of_the_whole_policy(split: Callable[..., Split], decoder: str) -> None:
    """For instructions of several lengths; the cut moves between them."""
    made = split(decoder=decoder, sigma=1.0)
    for text in TEXTS:
        made.instruct(text)
        for cut in range(1, len(made.names) + 1):
            made.cut = cut
            for row in range(2):  # the second frame has the cut that was wanted
                blocks, _ = made.query(row)
            assert blocks == cut


def test_a_prefix_is_told_of_when_it_ends(split: Callable[..., Split]) -> None:
    made = split()
    made.instruct("go")
    crossed = made.hybrid.prefix(Observation({}, STATES[0]))
    ((blocks, took_s),) = made.ended
    answer = made.hybrid.suffix(crossed)
    assert (blocks, took_s) == (answer.blocks, answer.prefix_s) and took_s > 0.0
    assert len(made.ended) == 1


def test_the_cache_is_on_the_side_that_decodes() -> None:
    """What crosses are rows, not states; only the second side has a step program, which reads them all."""
    compiled = compile_graph(SpellingPolicy(seed=1).build(3), FoldCache())
    for after in cut_points(compiled):
        cut = partition(compiled, after)
        assert not cut.prefix.programs[Lifetime.STEP].ops
        step = cut.suffix.programs[Lifetime.STEP]
        assert {use.state for use in step.states} == set(compiled.states.values())
        assert cut.boundary and not any(tensor in compiled.states for tensor in cut.boundary)
        assert max(tensor.shape[0] for tensor in cut.boundary) <= 4, "one row for each of the prefix's"


def test_a_frame_that_cannot_be_decoded_leaves_the_stages_as_they_are(split: Callable[..., Split]) -> None:
    made = split(decoder="jacobi")
    made.instruct("go")
    spelling = made.hybrid.policy.action_tokens
    assert spelling is not None

    def refuse(tokens: Sequence[int]) -> Any:
        raise DecodingError("token 10 at place 0 is no bin")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spelling), "actions", lambda _, tokens: refuse(tokens))
        with pytest.raises(DecodingError, match="token 10"):
            made.hybrid.suffix(made.hybrid.prefix(Observation({}, STATES[0])))
    made.query(1)


def test_a_deadline_is_that_of_the_frame(split: Callable[..., Split]) -> None:
    made = split(decoder="autoregressive")
    made.instruct("go")
    crossed = made.hybrid.prefix(Observation({}, STATES[0]), deadline=-1.0)
    decoded = made.hybrid.suffix(crossed).query.decoded
    assert decoded is not None and not decoded.converged and len(decoded.passes) == 1
    assert made.query(0)[1].decoded.converged  # type: ignore[union-attr]


def test_another_instruction_readies_the_present_cut_and_others_when_they_are_used(
    split: Callable[..., Split],
) -> None:
    made = split(decoder="autoregressive")
    first, second = made.sides
    made.cut = 2
    made.instruct("go")
    count = len(made.names)
    assert (len(first.loaded), len(second.loaded)) == (count, count), "the first one: every cut"
    made.instruct("put the cube into the bowl")
    assert (len(first.loaded), len(second.loaded)) == (count + 1, count + 1)
    executable = made.hybrid.policy.executable
    assert isinstance(executable, SplitExecutable)
    assert [executable.is_ready(name) for name in made.names] == [
        name == made.names[1] for name in made.names
    ]
    assert made.query(0)[0] == 2
    made.cut = 1
    assert made.query(1)[0] == 2, "the second side was not ready when it began"
    assert made.query(2)[0] == 1
    assert (len(first.loaded), len(second.loaded)) == (count + 2, count + 2)
    made.instruct("go")
    assert [executable.is_ready(name) for name in made.names[:2]] == [True, True], "that of the other one"
    assert made.query(3)[0] == 1
    assert len(first.loaded) == count + 2, "those of the first instruction are still there"


def test_everything_is_warm_before_the_first_frame(split: Callable[..., Split]) -> None:
    made = split(decoder="auto")
    made.hybrid.warm_up()  # without an instruction
    made.instruct("go")
    made.hybrid.warm_up()
    executable = made.hybrid.policy.executable
    assert isinstance(executable, SplitExecutable)
    assert all(executable.is_ready(name) for name in made.names)
    loaded = len(made.sides[1].loaded)
    for cut in range(1, len(made.names) + 1):
        made.cut = cut
        assert made.query(0)[0] == cut
    assert len(made.sides[1].loaded) == loaded


def test_all_memory_is_free_when_it_is_closed(split: Callable[..., Split]) -> None:
    """At once, not when the interpreter next looks for cycles: others are loaded in its place."""
    made = split(decoder="auto")
    made.instruct("go")
    made.query(0)
    executable = made.hybrid.policy.executable
    assert isinstance(executable, SplitExecutable)
    cut = executable.cuts[made.names[0]]
    held = [weakref.ref(side.executable) for side in (cut.prefix, cut.suffix)]
    gc.disable()
    try:
        del executable, cut
        made.hybrid.close()
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
