from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from vla_simd_ros import inference
from vla_simd_ros.checkpoints import CheckpointError, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.reference_executor import ReferenceExecutable, ReferenceExecutor
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.fidelity.observations import random_observations
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import Cancelled, InputError, Observation, Policy, make_executor

CAMERAS = (Camera("front", 32, 48), Camera("wrist", 32, 32))
SIZES: dict[str, Any] = {
    "dim_model": 16, "heads": 2, "feedforward": 24, "chunk_size": 4, "encoder_layers": 1, "decoder_layers": 1,
}  # fmt: skip
TEXT: dict[str, Any] = {
    "text_config.d_model": 16, "text_config.d_kv": 8, "text_config.d_ff": 24, "text_config.num_layers": 1,
    "text_config.num_heads": 2, "tokenizer_max_length": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    for policy in ("act", "impact"):
        settings = TEXT if policy == "impact" else {}
        make_checkpoint(policy, root / policy, Options(cameras=CAMERAS, sizes=SIZES, settings=settings))
    return {policy: root / policy for policy in ("act", "impact")}


@pytest.fixture
def act(folders: dict[str, Path]) -> Iterator[Policy]:
    policy = Policy.load(folders["act"], executor="reference")
    yield policy
    policy.close()


@pytest.fixture
def impact(folders: dict[str, Path]) -> Iterator[Policy]:
    policy = Policy.load(folders["impact"], executor="reference")
    yield policy
    policy.close()


def observation(**changes: Any) -> Observation:
    rng = np.random.default_rng(0)
    images = {c.name: rng.integers(0, 256, (c.height, c.width, 3), dtype=np.uint8) for c in CAMERAS}
    whole = Observation(images, rng.normal(size=6).astype(np.float32))
    return dataclasses.replace(whole, **changes)


def test_an_observation_gives_a_chunk_in_robot_units(act: Policy) -> None:
    answer = act.query(observation())
    assert answer.actions.shape == (4, 6)
    assert answer.actions.dtype == np.float32
    assert np.isfinite(answer.actions).all()
    np.testing.assert_array_equal(act.query(observation()).actions, answer.actions)
    other = act.query(observation(state=np.ones(6, np.float32)))
    assert np.abs(other.actions - answer.actions).max() > 0


def test_it_says_what_it_is(act: Policy, impact: Policy) -> None:
    assert (act.name, impact.name) == ("act", "impact")
    assert list(act.spec.cameras) == ["front", "wrist"]
    assert (act.isa, act.threads) == ("numpy", 0)


def test_times_are_read_from_one_clock(act: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        ticks = iter((1_000_000, 3_000_000, 13_000_000, 13_500_000))

        def perf_counter_ns(self) -> int:
            return next(self.ticks)

    monkeypatch.setattr(inference, "time", Clock())
    timing = act.query(observation()).timing
    assert dataclasses.astuple(timing) == (2.0, 10.0, 0.0, 0.5, 12.5, 0.0)


def test_an_instruction_is_needed_and_counts(impact: Policy) -> None:
    with pytest.raises(InputError, match="no instruction is set, the policy 'impact' needs one"):
        impact.query(observation())
    assert impact.set_instruction("pick up the tape") > 0
    assert not impact.instruction_truncated
    first = impact.query(observation()).actions
    impact.set_instruction("open the drawer")
    assert np.abs(impact.query(observation()).actions - first).max() > 0
    impact.set_instruction("pick up the tape")
    np.testing.assert_array_equal(impact.query(observation()).actions, first)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_instruction_is_refused_and_none_is_left(impact: Policy, text: str) -> None:
    impact.set_instruction("pick up the tape")
    with pytest.raises(InputError, match="is empty"):
        impact.set_instruction(text)
    with pytest.raises(InputError, match="no instruction is set"):
        impact.query(observation())


def test_a_long_instruction_is_cut_and_said_to_be(impact: Policy) -> None:
    impact.set_instruction("put the tape into the box and then the cup onto the table " * 3)
    assert impact.instruction_truncated
    assert impact.query(observation()).actions.shape == (4, 6)
    impact.set_instruction("go")
    assert not impact.instruction_truncated


def test_a_policy_without_instruction_ignores_one(act: Policy) -> None:
    before = act.query(observation()).actions
    assert act.set_instruction("pick up the tape") == 0.0
    assert act.set_instruction("") == 0.0
    np.testing.assert_array_equal(act.query(observation()).actions, before)


IMAGES = observation().images
BAD_OBSERVATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"images": {"front": IMAGES["front"]}},
        "camera 'wrist' is missing, the checkpoint expects: front, wrist",
    ),
    (
        {"images": {**IMAGES, "top": IMAGES["front"]}},
        "camera 'top' is unknown, the checkpoint expects: front, wrist",
    ),
    (
        {"images": {**IMAGES, "wrist": IMAGES["front"]}},
        "camera 'wrist': got 48x32 uint8 with 3 channels, the checkpoint expects 32x32 uint8 with 3 channels",
    ),
    (
        {"images": {**IMAGES, "wrist": IMAGES["wrist"].astype(np.float32)}},
        "camera 'wrist': got 32x32 float32 with 3 channels, the checkpoint expects 32x32 uint8",
    ),
    (
        {"images": {**IMAGES, "wrist": np.zeros((32, 32, 4), np.uint8)}},
        "camera 'wrist': got 32x32 uint8 with 4 channels",
    ),
    ({"images": {**IMAGES, "wrist": np.zeros((32, 32), np.uint8)}}, r"got an array of shape \[32, 32\]"),
    ({"state": None}, r"state is missing, the checkpoint expects \[6\]"),
    ({"state": np.zeros(5, np.float32)}, r"state: got shape \[5\], the checkpoint expects \[6\]"),
    ({"state": np.zeros((1, 6), np.float32)}, r"state: got shape \[1, 6\], the checkpoint expects \[6\]"),
    ({"state": np.zeros(6, np.int64)}, "state: got int64, expected floating-point values"),
    (
        {"state": np.array([0, 0, np.nan, 0, 0, 0], np.float32)},
        "state: value 2 is nan, expected a finite number",
    ),
    ({"state": np.array([0, 0, 0, 0, 0, -np.inf])}, "state: value 5 is -inf, expected a finite number"),
    ({"state": np.array([1e300, 0, 0, 0, 0, 0])}, r"state: value 0 is 1e\+300, expected a finite number"),
    ({"env_state": np.zeros(2, np.float32)}, r"env_state: got shape \[2\], the checkpoint expects \[0\]"),
]


@pytest.mark.parametrize(
    ("changes", "message"), BAD_OBSERVATIONS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_does_not_fit_is_named(act: Policy, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        act.query(observation(**changes))
    act.query(observation())


def test_double_precision_and_strided_observations_are_taken(act: Policy) -> None:
    expected = act.query(observation()).actions
    state = observation().state
    assert state is not None
    images = {name: np.asfortranarray(image) for name, image in observation().images.items()}
    taken = act.query(observation(images=images, state=state.astype(np.float64)))
    np.testing.assert_array_equal(taken.actions, expected)


class CountingExecutor(ReferenceExecutor):
    """Counts what is loaded and run."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[int] = []
        self.runs: list[Lifetime] = []
        self.made: list[ReferenceExecutable] = []

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> ReferenceExecutable:
        counting = self
        self.loaded.append(compiled.inputs["token_ids"].shape[0])

        class Counted(ReferenceExecutable):
            def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
                counting.runs.append(lifetime)
                return super().run(lifetime, inputs)

        self.made.append(Counted(compiled, np.dtype(np.float64), threading.Event(), WeakKeyDictionary()))
        return self.made[-1]


def test_programs_are_kept_for_the_lengths_used_last(folders: dict[str, Path]) -> None:
    executor = CountingExecutor()
    policy = Policy(load_checkpoint(folders["impact"]), executor)
    tokenizer = load_checkpoint(folders["impact"]).tokenizer()
    texts: dict[int, str] = {}
    text = ""
    while len(texts) < 5:
        text += "a"
        texts.setdefault(len(tokenizer.encode(text)), text)
    one, two, three, four, five = texts.values()
    for text in (one, two, one, three, four, one):
        policy.set_instruction(text)
    assert executor.loaded == list(texts)[:4], "a known length is not compiled again"
    policy.set_instruction(five)
    policy.set_instruction(one)
    assert executor.loaded == list(texts), "the length used longest ago was given up"
    policy.set_instruction(two)
    assert executor.loaded == [*texts, list(texts)[1]]


def test_the_episode_program_runs_once_per_instruction(folders: dict[str, Path]) -> None:
    executor = CountingExecutor()
    policy = Policy(load_checkpoint(folders["impact"]), executor)
    policy.set_instruction("go")
    for _ in range(3):
        assert policy.set_instruction("go") == 0.0
        policy.query(observation())
    assert executor.runs == [Lifetime.EPISODE] + 3 * [Lifetime.QUERY]
    with pytest.raises(InputError, match="is empty"):
        policy.set_instruction("")
    assert policy.set_instruction("go") > 0, "none was set any more"


def test_warming_up_sets_no_instruction(impact: Policy) -> None:
    impact.warm_up()
    with pytest.raises(InputError, match="no instruction is set"):
        impact.query(observation())
    impact.set_instruction("pick up the tape")
    expected = impact.query(observation()).actions
    impact.warm_up()
    np.testing.assert_array_equal(impact.query(observation()).actions, expected)


def test_a_closed_policy_says_so(act: Policy) -> None:
    act.close()
    act.close()
    for use in (lambda: act.query(observation()), act.warm_up, lambda: act.set_instruction("go")):
        with pytest.raises(RuntimeError, match="the policy 'act' is closed"):
            use()


def test_a_checkpoint_cut_short_while_it_is_used(tmp_path: Path, folders: dict[str, Path]) -> None:
    """Its word embeddings are used where they are stored, and the reading of a page that is gone would end
    the process; queries do without them."""
    shutil.copytree(folders["impact"], tmp_path / "copy")
    policy = Policy.load(tmp_path / "copy", threads=1)
    with patch("vla_simd_ros.executors.simd_constants.BORROWED_BYTES", 1024):
        policy.set_instruction("go")
    expected = policy.query(observation()).actions
    os.truncate(tmp_path / "copy" / "model.safetensors", 1000)
    np.testing.assert_array_equal(policy.query(observation()).actions, expected)
    assert policy.set_instruction("go") == 0.0, "it is set already"
    for text in ("pick up the tape", "go"):
        with pytest.raises(CheckpointError, match=r"model\.safetensors: was changed since it was opened"):
            policy.set_instruction(text)


@pytest.mark.parametrize("executor", ["simd", "reference"])
def test_a_cancelled_policy_says_so_until_it_is_resumed(folders: dict[str, Path], executor: str) -> None:
    policy = Policy.load(folders["impact"], executor=executor, threads=1 if executor == "simd" else 0)
    policy.set_instruction("go")
    expected = policy.query(observation()).actions
    policy.cancel()
    with pytest.raises(Cancelled, match="cancelled"):
        policy.query(observation())
    with pytest.raises(Cancelled, match="cancelled"):
        policy.set_instruction("stop")
    policy.resume()
    with pytest.raises(InputError, match="no instruction is set"):
        policy.query(observation())
    policy.set_instruction("go")
    np.testing.assert_array_equal(policy.query(observation()).actions, expected)


def test_instructions_of_several_lengths_take_turns(folders: dict[str, Path]) -> None:
    """They share one arena, whatever the order of their lengths."""
    texts = ("go", "pick up the tape", "go", "pick up", "pick up the tape")

    def ask(policy: Policy, text: str) -> Array:
        policy.set_instruction(text)
        return policy.query(observation()).actions

    shared = Policy.load(folders["impact"], threads=1)
    for text in texts:
        alone = Policy.load(folders["impact"], threads=1)
        np.testing.assert_array_equal(ask(shared, text), ask(alone, text))


def test_closing_frees_the_weights(folders: dict[str, Path]) -> None:
    executor = CountingExecutor()
    policy = Policy(load_checkpoint(folders["impact"]), executor)
    policy.set_instruction("go")
    executables = weakref.WeakSet(executor.made)
    arrays = [weakref.ref(value) for made in executor.made for value in made._compiled.constants.values()]
    executor.made.clear()
    assert len(executables) == 1
    policy.close()
    gc.collect()
    assert len(executables) == 0
    # Position tables are shared by all policies of the process.
    assert sum(ref() is not None for ref in arrays) <= 2


def test_bad_folders_and_settings_are_named(tmp_path: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        Policy.load(tmp_path / "missing", executor="reference")
    with pytest.raises(ValueError, match="executor 'gpu' is unknown, expected one of simd, torch, reference"):
        Policy.load(folders["act"], executor="gpu")
    with pytest.raises(SettingError, match="executor 'reference' has no isa, convolution, expected executor"):
        make_executor("reference", EngineSettings(threads=1, isa="avx2", convolution="direct"))
    with pytest.raises(SettingError, match="setting 'tiles' is unknown, expected one of threads, affinity"):
        Policy.load(folders["act"], tiles=4)


def test_an_executor_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "vla_simd_ros.executors.torch_executor", raising=False)
    with pytest.raises(SettingError, match="executor 'torch' needs PyTorch, which is not installed: pip"):
        make_executor("torch", EngineSettings())


def test_exact_is_a_keyword(folders: dict[str, Path]) -> None:
    keywords: list[dict[str, Any]] = [{"exact": True}, {"convolution": "exact"}, {"convolution": "winograd4"}]
    actions = []
    for keyword in keywords:
        policy = Policy.load(folders["act"], threads=1, **keyword)
        observation = random_observations(load_checkpoint(folders["act"]), 1, 0)[0]
        actions.append(policy.query(observation).actions)
    assert np.array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])
    with pytest.raises(
        SettingError, match="convolution='auto': expected one of exact, direct, flat, winogra"
    ):
        Policy.load(folders["act"], exact=True, convolution="auto")


def test_groups_of_layers_in_int8(tmp_path: Path) -> None:
    sizes = {**SIZES, "dim_model": 32}
    make_checkpoint("impact", tmp_path / "c", Options(cameras=CAMERAS, sizes=sizes, settings=TEXT))
    answers = {}
    for int8 in ("", "encoder", ["encoder.attention"], "all"):
        policy = Policy.load(tmp_path / "c", executor="reference", int8=int8)
        policy.set_instruction("put the tape into the box")
        answers[policy.int8] = policy.query(observation()).actions
    groups = [",".join(chosen) for chosen in answers]
    everything = "backbone.conv,tokens,encoder.attention,encoder.ffn,decoder.attention,decoder.ffn,head"
    assert groups == ["", "encoder.attention,encoder.ffn", "encoder.attention", everything]
    exact = answers[()]
    errors = [np.abs(actions - exact).max() / np.abs(exact).max() for actions in answers.values()]
    assert errors[0] == 0
    assert all(1e-6 < error < 0.1 for error in errors[1:])


def test_groups_that_there_are_not_are_refused_at_load(folders: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="int8 group 'text' is unknown, this policy has: backbone"):
        Policy.load(folders["impact"], executor="reference", int8="text")
    with pytest.raises(ValueError, match="int8 is 'auto', expected names of groups"):
        Policy.load(folders["impact"], executor="reference", int8="auto")


def test_no_camera_and_no_state(tmp_path: Path) -> None:
    options = Options(cameras=(), state_dim=0, env_state_dim=3, sizes=SIZES)
    make_checkpoint("act", tmp_path / "c", options)
    policy = Policy.load(tmp_path / "c", executor="reference")
    answer = policy.query(Observation({}, np.zeros(0, np.float32), np.ones(3, np.float32)))
    assert answer.actions.shape == (4, 6)
    with pytest.raises(InputError, match="camera 'front' is unknown, the checkpoint expects: none"):
        policy.query(Observation({"front": IMAGES["front"]}, None, np.ones(3, np.float32)))


def test_the_engine_agrees_with_the_reference(folders: dict[str, Path]) -> None:
    results = []
    for executor in ("simd", "reference"):
        policy = Policy.load(folders["impact"], executor=executor, threads=1 if executor == "simd" else 0)
        policy.warm_up()
        policy.set_instruction("put the tape into the box")
        results.append(policy.query(observation()).actions)
        policy.close()
    assert np.abs(results[0] - results[1]).max() <= 2e-6 * np.abs(results[1]).max()


def test_cameras_at_the_same_time_give_the_same_bits(folders: dict[str, Path]) -> None:
    actions = []
    for changes in (
        {"threads": 1},
        {"threads": 2, "threads_per_view": 1},
        {"threads": 5, "threads_per_view": 2},
    ):
        policy = Policy.load(folders["impact"], **changes)
        policy.set_instruction("put the tape into the box")
        actions += [policy.query(observation()).actions for _ in range(5)]
    assert all(np.array_equal(other, actions[0]) for other in actions[1:])
