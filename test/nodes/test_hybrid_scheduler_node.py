"""The hybrid scheduler: the chunks of the whole policy from two executors, whatever becomes of these."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image, JointState
from small_checkpoints import small_options
from std_msgs.msg import String
from vla_simd_ros.msg import ActionChunk, HybridState

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.base import Cancelled, Executable
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.partition import query_blocks
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.hybrid.machine_state import Loads
from vla_simd_ros.hybrid.measure_costs import STEPS
from vla_simd_ros.hybrid.stage_costs import BlockCost, StageCosts, write_costs
from vla_simd_ros.inference import Observation, Policy, make_executor
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.hybrid_scheduler_node import HybridSchedulerNode
from vla_simd_ros.nodes.messages import nanoseconds, stamp

MS = 1_000_000
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
PATIENCE_S = 30.0
HEIGHT, WIDTH, JOINTS = 32, 48, ["pan", "lift"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "impact"
    sizes = {"dim_model": 16, "heads": 2, "feedforward": 24, "chunk_size": 4, "encoder_layers": 3}
    text = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    settings = {f"text_config.{name}": value for name, value in text.items()}
    cameras = (Camera("front", HEIGHT, WIDTH),)
    options = Options(
        cameras=cameras, sizes={**sizes, "decoder_layers": 1}, settings=settings, state_dim=2, action_dim=2
    )
    make_checkpoint("impact", path, options)
    return path


def costs_by_hand(folder: Path, path: Path) -> Path:
    """Every block takes a millisecond on either side, and so do all steps together; a side holds 100 bytes
    for each of its blocks."""
    compiled = instruct(load_checkpoint(folder), "go").compiled
    names = query_blocks(compiled)
    blocks = [
        BlockCost(name, 1e-3, 1e-3, 0, 0, 8, 100 * before, 100 * (len(names) - before))
        for before, name in enumerate(names, 1)
    ]
    if compiled.programs[Lifetime.STEP].ops:
        blocks.append(BlockCost(STEPS, math.inf, 1e-3, 0, 100, 0))
    write_costs(StageCosts(tuple(blocks), 0.0, 1e9, source="by hand"), path)
    return path


@pytest.fixture(scope="module")
def costs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return costs_by_hand(folder, tmp_path_factory.mktemp("costs") / "costs.json")


class Fault:
    """What the executors of a side do with query programs: nothing, or what a test says, once; and with the
    scores of tokens."""

    def __init__(self) -> None:
        self.next: Callable[[Double], None] | None = None
        self.hit = threading.Event()
        self.spoil: Callable[[Array], Array] = lambda scores: scores

    def strike(self, executor: Double) -> None:
        fault, self.next = self.next, None
        if fault is not None:
            self.hit.set()
            fault(executor)


class Double:
    """An executor of the real kind, whose runs of query programs a fault can strike in the middle: after the
    program has run, before its result is there."""

    def __init__(self, executor: Any, fault: Fault) -> None:
        self._executor = executor
        self._fault = fault
        self.cancelled = threading.Event()

    isa = property(lambda self: self._executor.isa)
    threads = property(lambda self: self._executor.threads)

    def load(self, compiled: CompiledPolicy, beside: Executable | None = None) -> DoubleExecutable:
        inner = beside.inner if isinstance(beside, DoubleExecutable) else None
        return DoubleExecutable(self._executor.load(compiled, inner), self)

    def cancel(self) -> None:
        self.cancelled.set()
        self._executor.cancel()

    def resume(self) -> None:
        self.cancelled.clear()
        self._executor.resume()

    def strike(self) -> None:
        self._fault.strike(self)

    def spoil(self, scores: Array) -> Array:
        return self._fault.spoil(scores)


class DoubleExecutable:
    def __init__(self, inner: Any, executor: Double) -> None:
        self.inner = inner
        self._executor = executor

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs: dict[str, Array] = self.inner.run(lifetime, inputs)
        if lifetime is Lifetime.QUERY:
            self._executor.strike()
        return {
            name: self._executor.spoil(value) if name == "scores" else value
            for name, value in outputs.items()
        }

    def tensor(self, tensor: Any) -> Array:
        value: Array = self.inner.tensor(tensor)
        return value


def break_down(executor: Double) -> None:
    raise RuntimeError("the device is lost")


def stall(executor: Double) -> None:
    """Until it is cancelled."""
    assert executor.cancelled.wait(PATIENCE_S)
    raise Cancelled("cancelled")


class Idle:
    """A machine on which nobody else computes."""

    def sample(self) -> Loads:
        return Loads(None, 0.0)


class Vehicle:
    """A hybrid scheduler under test, with its camera and joints played by the test."""

    def __init__(self, ros: Any, folder: Path, costs: Path, **changes: Any) -> None:
        self.ros = ros
        self.faults = {"prefix": Fault(), "suffix": Fault()}
        self.made: list[str] = []
        self.whole = Policy.load(folder, threads=1)
        parameters = {
            "checkpoint": str(folder),
            "costs": str(costs),
            "joints": JOINTS,
            "instruction": "go on",
            "restart_pause": 0.0,
            **changes,
        }
        self.node = ros.add(
            lambda **options: HybridSchedulerNode(self.make, lambda cpus: Idle(), **options), **parameters
        )
        self.configured = self.node.trigger_configure()

    def make(self, name: str, settings: EngineSettings) -> Any:
        """Executors are asked for in pairs; one alone is that of the fallback."""
        self.made.append(name)
        fault = self.faults.get(("prefix", "suffix")[(len(self.made) - 1) % 2])
        assert fault is not None
        return Double(make_executor(name, settings), fault)

    def start(self) -> None:
        assert self.configured == SUCCESS
        ros = self.ros
        self.shades: dict[int, int] = {}
        self.chunks: list[ActionChunk] = ros.collect(ActionChunk, "action_chunk", qos.STATE)
        self.states: list[HybridState] = ros.collect(HybridState, "hybrid_state", qos.STATE)
        self.camera = ros.publisher(Image, "camera/front/image_raw", qos.STATE)
        self.joints = ros.publisher(JointState, "joint_states", qos.STATE)
        self.words = ros.publisher(String, "instruction", qos.LATCHED)
        assert self.node.trigger_activate() == SUCCESS

    def observe(self, shade: int) -> int:
        """A grey picture, captured 20 ms before now; the time moves on afterwards."""
        ros = self.ros
        captured: int = ros.now_ns - 20 * MS
        self.shades[captured] = shade
        for time_ns in (captured - 5 * MS, captured + 5 * MS):
            message = JointState(name=JOINTS, position=[0.01 * shade, -0.5])
            message.header.stamp = stamp(time_ns)
            self.joints.publish(message)
            ros.settle(2)
        image = Image(
            height=HEIGHT,
            width=WIDTH,
            encoding="rgb8",
            step=3 * WIDTH,
            data=bytes([shade]) * (3 * WIDTH * HEIGHT),
        )
        image.header.stamp = stamp(captured)
        self.camera.publish(image)
        ros.settle(3)
        ros.set_time(ros.now_ns + 40 * MS)
        return captured

    def until_chunk(self, shade: int, count: int = 1) -> ActionChunk:
        """Observe until so many more chunks have come: frames are lost while something is started again."""
        wanted = len(self.chunks) + count
        deadline = time.monotonic() + PATIENCE_S
        while len(self.chunks) < wanted:
            assert time.monotonic() < deadline, f"waited in vain for chunks, last state: {self.states[-1:]}"
            self.observe(shade)
            self.ros.settle(5)
        return self.chunks[-1]

    def expected(self, shade: int, instruction: str) -> list[float]:
        self.whole.set_instruction(instruction)
        picture = np.full((HEIGHT, WIDTH, 3), shade, np.uint8)
        state = np.array([0.01 * shade, -0.5], np.float32)
        return [float(v) for v in self.whole.query(Observation({"front": picture}, state)).actions.flat]

    def check(self, chunk: ActionChunk, shade: int | None = None, instruction: str = "go on") -> None:
        """The chunk's actions are those for this shade; None: for the picture that its stamp names."""
        assert chunk.instruction == instruction
        if shade is None:
            shade = self.shades[nanoseconds(chunk.header.stamp)]
        assert list(chunk.actions) == pytest.approx(self.expected(shade, instruction), abs=1e-6)

    def check_order(self) -> None:
        stamps = [nanoseconds(chunk.header.stamp) for chunk in self.chunks]
        assert stamps == sorted(set(stamps))
        assert [chunk.sequence for chunk in self.chunks] == list(range(1, len(self.chunks) + 1))

    def await_state(self, condition: Callable[[HybridState], bool], what: str) -> HybridState:
        self.ros.spin_until(lambda: any(condition(state) for state in self.states), what)
        return next(state for state in self.states if condition(state))

    def diagnostics(self) -> str:
        """All messages of now."""
        return "; ".join(text for status in self.node._present.statuses() for text in status.messages)


@pytest.fixture
def vehicle(ros: Any, folder: Path, costs: Path) -> Callable[..., Vehicle]:
    return lambda **changes: Vehicle(ros, folder, costs, **changes)


def test_chunks_are_those_of_the_whole_policy_and_the_state_tells_how(
    vehicle: Callable[..., Vehicle],
) -> None:
    robot = vehicle(cut=3, zone_first=2, zone_last=4, cut_margin=0.9)
    robot.start()
    captured = robot.observe(10)
    robot.ros.spin_until(lambda: robot.chunks, "a chunk")
    chunk = robot.chunks[0]
    assert nanoseconds(chunk.header.stamp) == captured
    robot.check(chunk, 10)
    timing = chunk.timing
    parts = (timing.preprocess_ms, timing.query_ms, timing.handover_ms, timing.step_ms, timing.postprocess_ms)
    assert sum(parts) == pytest.approx(timing.total_ms)
    assert min(parts[:3]) > 0.0
    for shade in (60, 120):
        robot.check(robot.until_chunk(shade))
    robot.check_order()
    state = robot.await_state(lambda state: state.frames_finished >= 3, "the state after three results")
    assert (state.mode, state.waiting, state.reason) == (HybridState.PIPELINE, False, "")
    assert (state.blocks, state.zone_first, state.zone_last, state.frame_blocks) == (3, 2, 4, 3)
    assert state.after
    assert min(state.prefix_ms, state.handover_ms, state.suffix_ms, state.interval_ms) > 0.0
    assert state.latency_ms >= state.prefix_ms + state.suffix_ms
    assert state.predicted_interval_ms > 0.0
    assert np.isnan(state.gpu_load) and state.cpu_load == 0.0
    assert (state.prefix_bytes, state.restarts, state.restart_limit) == (400, 0, 3)
    assert "unusable" in state.drop_reasons and len(state.drop_reasons) == len(state.drop_counts)
    assert state.frames_submitted >= state.frames_finished + sum(state.drop_counts)


def test_a_new_instruction_starts_an_epoch(vehicle: Callable[..., Vehicle]) -> None:
    robot = vehicle()
    robot.start()
    first = robot.until_chunk(10)
    robot.words.publish(String(data="stop at the next corner"))
    robot.ros.settle()
    chunk = robot.until_chunk(20)
    while chunk.epoch == first.epoch:
        chunk = robot.until_chunk(20)
    robot.check(chunk, 20, "stop at the next corner")
    robot.check_order()


def test_a_stage_that_breaks_in_mid_frame_is_started_again(vehicle: Callable[..., Vehicle]) -> None:
    robot = vehicle()
    robot.start()
    robot.until_chunk(10)
    robot.faults["prefix"].next = break_down
    robot.observe(20)
    state = robot.await_state(lambda state: bool(state.reason), "the failure")
    assert "the prefix failed on frame" in state.reason and "the device is lost" in state.reason
    chunk = robot.until_chunk(30)
    robot.check(chunk, 30)
    robot.check_order()
    state = robot.await_state(lambda state: state.restarts == 1 and not state.waiting, "the restart")
    assert state.mode == HybridState.PIPELINE
    assert dict(zip(state.drop_reasons, state.drop_counts, strict=True))["failed"] >= 1


def test_a_stage_that_stalls_is_found_and_started_again(vehicle: Callable[..., Vehicle]) -> None:
    robot = vehicle(stall_timeout=0.5, restart_limit=50)
    robot.start()
    robot.until_chunk(10)
    robot.faults["suffix"].next = stall
    robot.observe(20)
    robot.ros.spin_until(robot.faults["suffix"].hit.is_set, "the stall")
    state = robot.await_state(lambda state: "the suffix stalled on frame" in state.reason, "its discovery")
    assert "longer than 0.5 s" in state.reason
    robot.check(robot.until_chunk(30), 30)
    robot.check_order()


def test_too_many_failures_lead_to_the_whole_policy_on_one_executor(vehicle: Callable[..., Vehicle]) -> None:
    robot = vehicle(restart_limit=0)
    robot.start()
    robot.until_chunk(10)
    robot.faults["suffix"].next = break_down
    robot.observe(20)
    robot.await_state(lambda state: state.mode == HybridState.FALLBACK, "the fallback")
    # Its executor is the third to be made; the double has it on the prefix's side.
    chunk = robot.until_chunk(30, count=2)
    robot.check(chunk, 30)
    robot.check_order()
    assert robot.made == ["simd"] * 3
    state = robot.await_state(
        lambda state: state.mode == HybridState.FALLBACK and state.frame_blocks == 0, "a frame of it"
    )
    assert "the whole policy computes on one executor: the suffix failed" in robot.diagnostics()
    robot.faults["prefix"].next = break_down
    robot.observe(40)
    state = robot.await_state(lambda state: state.mode == HybridState.STOPPED, "the end")
    assert "nothing is computed any more" in state.reason
    assert "nothing is computed any more" in robot.diagnostics()
    count = len(robot.chunks)
    robot.observe(50)
    robot.ros.settle()
    assert len(robot.chunks) == count
    assert robot.node.trigger_deactivate() == SUCCESS
    assert robot.node.trigger_cleanup() == SUCCESS
    assert robot.node.trigger_configure() == SUCCESS


def test_the_cut_moves_away_from_a_slow_side(vehicle: Callable[..., Vehicle]) -> None:
    robot = vehicle(cut=2, zone_first=2, zone_last=4, cut_margin=0.0)
    robot.start()

    def dawdle(executor: Double) -> None:
        time.sleep(0.2)

    deadline = time.monotonic() + PATIENCE_S
    shade = 0
    while not any(state.blocks == 4 for state in robot.states):
        assert time.monotonic() < deadline, f"the cut never moved, last state: {robot.states[-1:]}"
        robot.faults["suffix"].next = dawdle
        shade += 1
        robot.check(robot.until_chunk(shade))
    robot.check(robot.until_chunk(200, count=2))
    assert any(state.moves > 0 for state in robot.states)
    robot.check_order()


def test_an_observation_that_cannot_be_used_is_no_failure(vehicle: Callable[..., Vehicle]) -> None:
    robot = vehicle(max_observation_age=0.001)
    robot.start()
    robot.observe(10)
    robot.ros.spin_until(lambda: "observations are late" in robot.diagnostics(), "the reason")
    assert not robot.chunks
    assert "hybrid" not in robot.diagnostics()


def test_what_cannot_be_is_refused_in_words(
    vehicle: Callable[..., Vehicle], capfd: pytest.CaptureFixture[str]
) -> None:
    robot = vehicle(zone_first=900)
    assert robot.configured == FAILURE
    assert "zone_first is 900, expected 1 to" in capfd.readouterr().err
    robot.node.set_parameters([Parameter("zone_first", value=0)])
    assert robot.node.trigger_configure() == SUCCESS


@pytest.fixture(scope="module")
def speller(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy that spells its actions in tokens, and its costs."""
    path = tmp_path_factory.mktemp("policy") / "impact_tokens"
    options = small_options(
        "impact_tokens", cameras=(Camera("front", HEIGHT, WIDTH),), state_dim=2, action_dim=2
    )
    make_checkpoint("impact_tokens", path, options)
    return path, costs_by_hand(path, path.parent / "costs.json")


def test_tokens_are_decoded_on_the_second_executor(ros: Any, speller: tuple[Path, Path]) -> None:
    vehicle = Vehicle(ros, *speller, decoder="jacobi")
    vehicle.start()
    for shade in (30, 200):
        chunk = vehicle.until_chunk(shade)
        vehicle.check(chunk, shade)
        assert chunk.timing.decoder == "jacobi" and chunk.timing.exact and chunk.timing.passes > 0
    assert vehicle.node.set_parameters([Parameter("decoder", value="autoregressive")])[0].successful
    changed = vehicle.until_chunk(90, count=2)  # one may have been under way
    vehicle.check(changed, 90)
    assert changed.timing.passes == changed.timing.tokens


def test_what_cannot_be_decoded_is_no_failure_of_a_stage(ros: Any, speller: tuple[Path, Path]) -> None:
    vehicle = Vehicle(ros, *speller, decoder="jacobi")
    vehicle.start()
    vehicle.until_chunk(30)
    vehicle.faults["suffix"].spoil = lambda scores: np.full_like(scores, np.nan)
    vehicle.observe(60)
    ros.spin_until(lambda: "the scores of token 0 are not finite" in vehicle.diagnostics(), "the error")
    vehicle.faults["suffix"].spoil = lambda scores: scores
    vehicle.check(vehicle.until_chunk(90), 90)
    assert vehicle.node.set_parameters([Parameter("query_deadline_ms", value=1e-6)])[0].successful
    vehicle.observe(120)
    ros.spin_until(lambda: "a query had not converged after 1 passes" in vehicle.diagnostics(), "the report")
    assert vehicle.node.set_parameters([Parameter("query_deadline_ms", value=0.0)])[0].successful
    vehicle.check(vehicle.until_chunk(150), 150)
    vehicle.check_order()
    last = vehicle.await_state(lambda state: bool(state.frames_finished >= 3), "a state")
    assert last.restarts == 0 and last.reason == ""
    assert dict(zip(last.drop_reasons, last.drop_counts, strict=True))["unusable"] >= 2
