"""The chunks of a recording made again: each from the frames and joint states that its query had.

A chunk's timing names the stamps of what its observation was made of, so the result does not depend on when
the messages came, and must be the same bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.joint_buffer import (
    JointBuffer,
    JointStateError,
    JointStateUnavailable,
    select_joints,
)
from vla_simd_ros.control.observation_history import padded, step_times
from vla_simd_ros.control.stamps import StampValidator
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.inference import Observation, Query
from vla_simd_ros.nodes.images import ImageError, rgb
from vla_simd_ros.nodes.policy_settings import PolicySettings
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.recording.bag import Bag, BagError
from vla_simd_ros.recording.run import nanoseconds, topics

Rows = npt.NDArray[np.float32]
_Step = tuple[dict[str, npt.NDArray[np.uint8]], Rows]
"""Images by camera, and the state."""

# Longer than any observation is used; frames in memory are large.
_KEPT_NS = 3_000_000_000
_JOINT_HISTORY_NS = 5_000_000_000


class Answering(Protocol):
    """What is needed of a :class:`vla_simd_ros.inference.Policy`."""

    spec: PolicySpec

    @property
    def decoder(self) -> DecoderOptions | None:
        """What decodes action tokens."""

    @property
    def set_decoder(self) -> Callable[..., None]:
        """Takes the fields of other options, for later queries."""

    def set_instruction(self, text: str) -> float:
        """Run the episode program."""

    def noise(self, seed: int, num_steps: int | None = None) -> npt.NDArray[Any]:
        """The noise that a seed stands for."""

    def query(
        self,
        observation: Observation,
        *,
        noise: npt.NDArray[Any] | None = None,
        num_steps: int | None = None,
    ) -> Query:
        """Predict a chunk."""


class Unavailable(Exception):
    """The recording lacks what a chunk was made of."""


@dataclass(frozen=True, eq=False)
class ReplayedChunk:
    """A recorded chunk, and what the policy makes of the same observation now.

    Attributes:
        message: the recorded ActionChunk.
        time_ns: when it was recorded.
        recorded: its rows, ``[horizon, columns]``.
        rows: those of now; None where the recording lacks what it was made of, which ``problem`` names.
    """

    message: Any
    time_ns: int
    recorded: Rows
    rows: Rows | None
    problem: str = ""

    @property
    def same(self) -> bool:
        """Whether both are the same, bit for bit."""
        return self.rows is not None and self.rows.tobytes() == self.recorded.tobytes()

    @property
    def difference(self) -> float:
        """The largest difference of two values; infinite between other shapes."""
        if self.rows is None or self.rows.shape != self.recorded.shape:
            return float("inf")
        return float(np.max(np.abs(self.rows - self.recorded), initial=0.0))


def replay_chunks(bag: Bag, policy: Answering, settings: PolicySettings) -> Iterator[ReplayedChunk]:
    """Each recorded chunk with the one of now, in the order of the recording.

    Raises:
        BagError: the recording lacks a topic that the policy needs.
    """
    cameras = {
        bag.resolve(source.topic + ("/compressed" if settings.compressed else "")): source.name
        for source in settings.cameras
    }
    present = topics(bag)
    wanted = {"chunk"} | ({"joint_states"} if policy.spec.state_dim else set())
    _require(bag, cameras, wanted - present.keys())
    roles = {present[role]: role for role in wanted}
    memory = _Memory(list(cameras.values()), policy.spec, settings)
    instruction: str | None = None
    for recorded in bag.messages([*cameras, *roles]):
        if recorded.topic in cameras:
            memory.frame(cameras[recorded.topic], recorded.message, recorded.time_ns)
        elif roles[recorded.topic] == "joint_states":
            memory.joint_state(recorded.message, recorded.time_ns)
        else:
            chunk = recorded.message
            if policy.spec.uses_instruction and chunk.instruction != instruction:
                instruction = chunk.instruction
                policy.set_instruction(chunk.instruction)
            yield _replay(chunk, recorded.time_ns, memory, policy, settings)


def _require(bag: Bag, cameras: Mapping[str, str], missing_roles: set[str]) -> None:
    missing = [topic for topic in cameras if topic not in bag.topics] + sorted(missing_roles)
    if missing:
        have = ", ".join(sorted(bag.topics)) or "nothing"
        raise BagError(f"{bag.path}: a replay needs {', '.join(missing)}; recorded is {have}")


def _replay(
    chunk: Any, time_ns: int, memory: _Memory, policy: Answering, settings: PolicySettings
) -> ReplayedChunk:
    columns = max(1, len(chunk.action_names))
    recorded = np.asarray(chunk.actions, dtype=np.float32).reshape(-1, columns)
    try:
        observation = memory.observation(chunk)
    except (Unavailable, JointStateUnavailable, ImageError) as error:
        return ReplayedChunk(chunk, time_ns, recorded, None, str(error))
    actions = np.asarray(_query(policy, observation, chunk.timing).actions, dtype=np.float64)
    rows = settings.action_units.to_robot(actions).astype(np.float32)
    return ReplayedChunk(chunk, time_ns, recorded, rows)


def _query(policy: Answering, observation: Observation, timing: Any) -> Query:
    """The query again, from the noise that it had, or decoded as it was."""
    options = decoder_of(timing)
    if options is not None and options != policy.decoder:
        policy.set_decoder(**asdict(options))
    # Recordings of before policies could iterate do not have the field.
    num_steps = getattr(timing, "num_steps", 0)
    if not num_steps:
        return policy.query(observation)
    noise = policy.noise(timing.noise_seed, num_steps)
    return policy.query(observation, noise=noise, num_steps=num_steps)


def decoder_of(timing: Any) -> DecoderOptions | None:
    """What decodes the tokens of a query as they were: with its block, and, where passes or time ran out,
    so many passes. None for a query without tokens, as in recordings of before there were any."""
    if not getattr(timing, "passes", 0):
        return None
    name = timing.decoder
    if name == "auto":
        name = "autoregressive" if timing.block == 1 else "jacobi"
    ran_out = timing.exit in (type(timing).MAX_PASSES, type(timing).DEADLINE)
    return DecoderOptions(
        decoder=name,
        sigma=timing.sigma,
        max_passes=int(timing.passes) if ran_out else 0,
        block=int(timing.block),
        initialization=timing.initialization,
        decoder_seed=int(timing.decoder_seed),
    )


class _Memory:
    """The frames and joint states of the last seconds."""

    def __init__(self, cameras: list[str], spec: PolicySpec, settings: PolicySettings) -> None:
        self._spec = spec
        self._settings = settings
        self._frames: dict[str, dict[int, Any]] = {camera: {} for camera in cameras}
        self._coming: deque[tuple[int, Any]] = deque()
        self._stamps = StampValidator("joint_states", settings.stamp_tolerance_ns)
        # Of the earliest observation step too.
        self._past_ns = round((spec.observation_steps - 1) * settings.step_period * NANOSECONDS)
        self._joints = JointBuffer(
            _JOINT_HISTORY_NS + self._past_ns, settings.joint_max_gap_ns, settings.joint_max_extrapolation_ns
        )

    def frame(self, camera: str, message: Any, now_ns: int) -> None:
        frames = self._frames[camera]
        stamp_ns = nanoseconds(message.header.stamp)
        # The first one is the one that was used; a repeated stamp is refused by the node too.
        frames.setdefault(stamp_ns, message)
        for old in [each for each in frames if each < stamp_ns - _KEPT_NS - self._past_ns]:
            del frames[old]

    def joint_state(self, message: Any, now_ns: int) -> None:
        stamp_ns = nanoseconds(message.header.stamp)
        if self._stamps.check(stamp_ns, now_ns) is None:
            try:
                positions = select_joints(message.name, message.position, self._settings.joints)
            except JointStateError:
                return
            self._coming.append((stamp_ns, positions))

    def observation(self, chunk: Any) -> Observation:
        """What the query of a chunk was given."""
        if chunk.frozen:
            raise Unavailable(
                "it continues committed rows, which a recording does not hold as they were given"
            )
        steps, cameras = self._spec.observation_steps, len(self._frames)
        stamps = [nanoseconds(each) for each in chunk.timing.frame_stamps]
        if len(stamps) != steps * cameras:
            raise Unavailable(
                f"it was made of {len(stamps)} frames, the policy has {cameras} cameras"
                + (f" and takes {steps} observation steps" if steps > 1 else "")
            )
        self._know_joints_up_to(nanoseconds(chunk.timing.joint_stamp))
        period_ns = round(self._settings.step_period * NANOSECONDS)
        times = step_times(nanoseconds(chunk.header.stamp), steps, period_ns)
        made_of = [tuple(stamps[step * cameras : (step + 1) * cameras]) for step in range(steps)]
        present = self._step(times[-1], made_of[-1])
        if steps == 1:
            return Observation(*present)
        # A step that there was not has the frames of the one after it.
        before = [
            None if mine == after else self._step(time_ns, mine)
            for time_ns, mine, after in zip(times[:-1], made_of[:-1], made_of[1:], strict=True)
        ]
        whole, valid = padded(before, present)
        images = {camera: np.stack([images[camera] for images, _ in whole]) for camera in self._frames}
        return Observation(images, np.stack([state for _, state in whole]), valid=np.array(valid, np.bool_))

    def _step(self, time_ns: int, stamps: Sequence[int]) -> _Step:
        images = {}
        for stamp_ns, (camera, frames) in zip(stamps, self._frames.items(), strict=True):
            if stamp_ns not in frames:
                raise Unavailable(f"a frame of camera '{camera}' is not recorded")
            spec = self._spec.cameras[camera]
            images[camera] = rgb(frames[stamp_ns], camera, spec, self._settings.pictures)
        if not self._spec.state_dim:
            return images, np.zeros(0, dtype=np.float32)
        positions = self._joints.at(time_ns)
        return images, self._settings.state_units.to_policy(positions).astype(np.float32)

    def _know_joints_up_to(self, newest_ns: int) -> None:
        """Take the joint states up to the newest one that the node had."""
        if not self._spec.state_dim:
            return
        while self._coming and self._coming[0][0] <= newest_ns:
            self._joints.add(*self._coming.popleft())
        newest = self._joints.newest()
        if newest is None or newest[0] != newest_ns:
            raise Unavailable("a joint state is not recorded")
