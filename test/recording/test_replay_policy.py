"""Chunks made again from recordings written here, and what a recording can lack for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.inference import Observation, Query, Timing
from vla_simd_ros.nodes.policy_settings import PARAMETERS, settings_for
from vla_simd_ros.policies.base import CameraSpec, PolicySpec
from vla_simd_ros.recording.bag import Bag, BagError
from vla_simd_ros.recording.replay import in_words, replay
from vla_simd_ros.recording.replay_policy import ReplayedChunk, replay_chunks

MS = 1_000_000
START = 10**18
SPEC = PolicySpec(
    "fake", {"front": CameraSpec(2, 2), "wrist": CameraSpec(2, 2)}, 2, 0, 2, chunk_size=3, n_action_steps=3,
    uses_instruction=True, max_instruction_tokens=32,
)  # fmt: skip


class Adding:
    """Row i is the state plus i, plus the brightness of each camera."""

    spec = SPEC

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.decoder: DecoderOptions | None = None

    def set_decoder(self, decoder: str, **options: Any) -> None:
        self.decoder = DecoderOptions(decoder, **options)

    def set_instruction(self, text: str) -> float:
        self.instructions.append(text)
        return 0.0

    def noise(self, seed: int, num_steps: int | None = None) -> np.ndarray:
        return np.array([seed, num_steps])

    def query(
        self, observation: Observation, *, noise: np.ndarray | None = None, num_steps: int | None = None
    ) -> Query:
        assert observation.state is not None
        light = 10.0 * observation.images["front"][0, 0, 0] + observation.images["wrist"][0, 0, 0]
        rows = observation.state[None, :] + np.arange(3)[:, None] + light
        if noise is not None:
            assert noise[1] == num_steps
            rows = rows + noise[0] + 100 * noise[1]
        return Query(rows.astype(np.float32), Timing(0.0, 0.0, 0.0, 0.0, 0.0))


class Robot:
    """Records what cameras, joints and policy node would have published."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def frame(self, camera: str, time_ms: int, shade: int) -> None:
        self._maker.add(
            f"/camera/{camera}/image_raw", "sensor_msgs/msg/Image", START + (time_ms + 4) * MS,
            stamp=START + time_ms * MS, height=2, width=2, encoding="rgb8", step=6, data=[shade] * 12,
        )  # fmt: skip

    def joints(self, time_ms: int, pan: float) -> None:
        self._maker.add(
            "/joint_states", "sensor_msgs/msg/JointState", START + (time_ms + 1) * MS,
            stamp=START + time_ms * MS, name=["lift", "pan"], position=[2.0, pan],
        )  # fmt: skip

    def chunk(
        self,
        time_ms: int,
        first: list[float],
        frames: list[int],
        joint: int,
        text: str = "go",
        number: int = 1,
        frozen: int = 0,
        num_steps: int = 0,
        noise_seed: int = 0,
        **timing: Any,
    ) -> None:
        stamps = [divmod(START + each * MS, 1000 * MS) for each in [*frames, joint]]
        times = [{"sec": sec, "nanosec": nanosec} for sec, nanosec in stamps]
        actions = (np.array(first)[None, :] + np.arange(3)[:, None]).reshape(-1)
        self._maker.add(
            "/action_chunk", "vla_simd_ros/msg/ActionChunk", START + time_ms * MS,
            stamp=START + min(frames[-2:]) * MS, sequence=number, epoch=1, instruction=text,
            action_names=["pan", "lift"], step_period=0.033, horizon=3, window=3, frozen=frozen,
            actions=actions,
            timing={
                "frame_stamps": times[:-1], "joint_stamp": times[-1],
                "num_steps": num_steps, "noise_seed": noise_seed, **timing,
            },
        )  # fmt: skip


@pytest.fixture
def robot(bag_maker: Any) -> Robot:
    """Two joint states, and two frames of each camera."""
    made = Robot(bag_maker)
    for time, pan in ((0, 0.0), (20, 2.0), (40, 4.0)):
        made.joints(time, pan)
    for time, shade in ((10, 1), (43, 2)):
        made.frame("front", time, shade)
        made.frame("wrist", time + 5, shade + 2)
    return made


def chunks(maker: Any, tmp_path: Path, policy: Adding | None = None, **changes: Any) -> list[ReplayedChunk]:
    policy = policy or Adding()
    values = {spec.name: spec.default for spec in PARAMETERS} | {"joints": ["pan", "lift"], **changes}
    with Bag(maker.write(tmp_path / "bag")) as bag:
        return list(replay_chunks(bag, policy, settings_for(values, policy.spec)))


def test_a_chunk_is_made_of_what_its_query_had(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    # Interpolated to the front frame: 1.0; the front's light 10, the wrist's 3.
    robot.chunk(90, [14.0, 15.0], [10, 15], 20)
    (found,) = chunks(bag_maker, tmp_path)
    assert found.same and found.difference == 0.0


def test_joint_states_that_came_after_the_query_started_are_not_used(
    robot: Robot, bag_maker: Any, tmp_path: Path
) -> None:
    # Only the sample of 0 ms was there: it is held, not interpolated to 10 ms.
    robot.chunk(90, [13.0, 15.0], [10, 15], 0)
    (found,) = chunks(bag_maker, tmp_path)
    assert found.same


def test_a_query_may_have_used_any_of_the_frames(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    robot.chunk(90, [1.0 + 10 + 4, 2.0 + 10 + 4], [10, 48], 20)
    (found,) = chunks(bag_maker, tmp_path)
    assert found.same


def test_a_difference_of_the_last_bit_is_seen(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    robot.chunk(90, [float(np.nextafter(np.float32(14.0), np.float32(15.0))), 15.0], [10, 15], 20)
    (found,) = chunks(bag_maker, tmp_path)
    assert not found.same
    assert 0.0 < found.difference < 2e-6


def test_the_instruction_is_set_when_it_changes(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    policy = Adding()
    for number, text in enumerate(("go", "go", "stop"), 1):
        robot.chunk(90 + number, [14.0, 15.0], [10, 15], 20, text, number)
    chunks(bag_maker, tmp_path, policy)
    assert policy.instructions == ["go", "stop"]


@pytest.mark.parametrize(
    ("frames", "joint", "problem"),
    [
        ([10, 16], 20, "a frame of camera 'wrist' is not recorded"),
        ([10], 20, "made of 1 frames, the policy has 2 cameras"),
        ([10, 15], 30, "a joint state is not recorded"),
    ],
)
def test_what_is_not_recorded_is_named(
    robot: Robot, bag_maker: Any, tmp_path: Path, frames: list[int], joint: int, problem: str
) -> None:
    robot.chunk(90, [14.0, 15.0], frames, joint)
    (found,) = chunks(bag_maker, tmp_path)
    assert found.rows is None and not found.same
    assert problem in found.problem


def test_a_chunk_that_continues_committed_rows_is_not_made_again(
    robot: Robot, bag_maker: Any, tmp_path: Path
) -> None:
    robot.chunk(90, [14.0, 15.0], [10, 15], 20, frozen=2)
    (found,) = chunks(bag_maker, tmp_path)
    assert found.rows is None and "committed rows" in found.problem


def test_a_recording_without_cameras_or_chunks_is_refused(bag_maker: Any, tmp_path: Path) -> None:
    Robot(bag_maker).joints(0, 1.0)
    with pytest.raises(
        BagError, match="a replay needs /camera/front/image_raw, /camera/wrist/image_raw, chunk"
    ):
        chunks(bag_maker, tmp_path)


def test_the_comparison_in_words(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    robot.chunk(90, [14.0, 15.0], [10, 15], 20)
    robot.chunk(91, [14.5, 15.0], [10, 15], 20, number=2)
    robot.chunk(92, [14.0, 15.0], [10, 16], 20, number=3)
    values = {spec.name: spec.default for spec in PARAMETERS} | {"joints": ["pan", "lift"]}
    with Bag(bag_maker.write(tmp_path / "bag")) as bag:
        comparison = replay(bag, Adding(), settings_for(values, SPEC))
    assert not comparison.same
    lines = in_words(comparison).splitlines()
    assert lines[0] == "chunks: 3 recorded, 2 made again, 1 of them the same bit for bit"
    assert lines[1] == "  different: 2; by 0.5 at most"
    assert lines[2].startswith("  not made again: 1 x a frame of camera 'wrist'")


def test_noise_is_made_again_from_its_seed(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    robot.chunk(90, [614.0 + 5, 615.0 + 5], [10, 15], 20, num_steps=6, noise_seed=5)
    (found,) = chunks(bag_maker, tmp_path)
    assert found.same


class Spelling(Adding):
    """The rows of above, as far as the passes of its decoder get; notes its decoders."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = DecoderOptions()
        self.decoders: list[DecoderOptions] = []

    def query(self, observation: Observation, **given: Any) -> Query:
        made = super().query(observation, **given)
        assert self.decoder is not None
        self.decoders.append(self.decoder)
        return replace(made, actions=made.actions - 0.5 * (self.decoder.max_passes == 2))


def test_tokens_are_decoded_as_they_were(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    complete, fixed, ran_out = 1, 3, 6
    how = {"tokens": 6, "sigma": 0.25, "initialization": "random", "decoder_seed": 5}
    robot.chunk(
        90, [14.0, 15.0], [10, 15], 20, number=1, passes=3, exit=fixed, decoder="auto", block=4, **how
    )
    robot.chunk(
        91, [14.0, 15.0], [10, 15], 20, number=2, passes=6, exit=complete, decoder="auto", block=1, **how
    )
    robot.chunk(
        92, [13.5, 14.5], [10, 15], 20, number=3, passes=2, exit=ran_out, decoder="early_exit", block=6, **how
    )
    policy = Spelling()
    assert [found.same for found in chunks(bag_maker, tmp_path, policy)] == [True] * 3
    assert policy.decoders == [
        DecoderOptions("jacobi", 0.25, 0, 4, "random", 5),
        DecoderOptions("autoregressive", 0.25, 0, 1, "random", 5),
        DecoderOptions("early_exit", 0.25, 2, 6, "random", 5),
    ]


class LookingBack(Adding):
    """The present step as the one above; the one before counts a hundred times as much, if there was one."""

    spec = replace(SPEC, observation_steps=2)

    def query(self, observation: Observation, **given: Any) -> Query:
        assert observation.state is not None and observation.valid is not None
        parts = [
            super(LookingBack, self)
            .query(Observation({c: i[step] for c, i in observation.images.items()}, observation.state[step]))
            .actions
            for step in range(2)
        ]
        rows = parts[1] + 100 * parts[0] * observation.valid[0]
        return Query(rows.astype(np.float32), Timing(0.0, 0.0, 0.0, 0.0, 0.0))


def test_the_step_before_is_made_again_and_one_that_was_not_there_is_not(
    robot: Robot, bag_maker: Any, tmp_path: Path
) -> None:
    # As above at 10 ms; at 43 ms, 33 ms later, the lights are 20 and 4, and the newest sample is of 40 ms.
    early, late = np.array([14.0, 15.0]), np.array([28.0, 26.0])
    steps = np.arange(3.0)[:, None]
    robot.chunk(90, late.tolist(), [43, 48, 43, 48], 40, number=1)
    robot.chunk(91, (late + 100 * early).tolist(), [10, 15, 43, 48], 40, number=2)
    first, second = chunks(bag_maker, tmp_path, LookingBack(), step_period=0.033)
    assert first.same
    assert second.rows is not None
    np.testing.assert_allclose(second.rows, late + 100 * early + 101 * steps)


def test_frames_of_another_number_of_steps(robot: Robot, bag_maker: Any, tmp_path: Path) -> None:
    robot.chunk(90, [14.0, 15.0], [10, 15], 20)
    (found,) = chunks(bag_maker, tmp_path, LookingBack())
    assert "made of 2 frames, the policy has 2 cameras and takes 2 observation steps" in found.problem
