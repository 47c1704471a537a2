"""Queries, delays and rows in simulated time, against a course worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from small_world import CHUNK, ENDS, PERIOD_NS, RIGHT, STEP, BrokenPolicy, LinePolicy, LineWorld, line_spec

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.decoding.base import Decoded, DecodingError, Exit, Pass
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.pilot import Decoding, PilotFailed
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.world import Episode, EvaluationError, World
from vla_simd_ros.executors.base import InputError
from vla_simd_ros.inference import Query
from vla_simd_ros.observation import Observation

EPISODE = Episode(0, 3, RIGHT, RIGHT)
STEP_MS = PERIOD_NS / 1e6


def course(
    policy: LinePolicy, execution: Execution, steps: int, world: LineWorld | None = None
) -> list[float]:
    """Where the joint is after each control step."""
    world = world or LineWorld()
    pilot = PolicyPilot(policy, execution)
    world.begin(EPISODE)
    pilot.begin(world, EPISODE)
    places = []
    for _ in range(steps):
        world.act(pilot.command(world))
        places.append(world.place)
    return places


def start() -> float:
    world = LineWorld()
    world.begin(EPISODE)
    return world.place


def walked(*rows: int) -> list[float]:
    """Where the joint is at multiples of its step from the start."""
    return [pytest.approx(min(start() + STEP * row, ENDS[RIGHT]), abs=1e-6) for row in rows]


def test_without_delay_every_observation_is_queried_and_its_first_row_executed() -> None:
    for mode in ("time_aligned", "lagged"):
        policy = LinePolicy()
        assert course(policy, Execution(mode), 6) == walked(1, 2, 3, 4, 5, 6)
        assert len(policy.seen) == 6


def test_synchronous_execution_queries_when_the_rows_have_run_out() -> None:
    policy = LinePolicy()
    assert course(policy, Execution("synchronous", horizon=3), 9) == walked(*range(1, 10))
    seen = [float(observation.state[0]) for observation in policy.seen if observation.state is not None]
    assert seen == walked(0, 3, 6)


def test_a_robot_that_waits_stands_meanwhile() -> None:
    late = Delay(2 * STEP_MS)
    policy = LinePolicy()
    # Two steps without a row before the first chunk, and between any two.
    expected = walked(0, 0, 1, 2, 3, 3, 3, 4, 5, 6)
    assert course(policy, Execution("synchronous", horizon=3, delay=late), 10) == expected
    assert len(policy.seen) == 2


def test_time_aligned_rows_belong_to_the_time_of_their_observation() -> None:
    # The first chunk arrives 3 steps late: rows 0 to 2 are stale, row 3 is 4 steps from the start.
    policy = LinePolicy()
    late = Execution("time_aligned", delay=Delay(3 * STEP_MS))
    assert course(policy, late, 6)[:4] == walked(0, 0, 0, 4)


def test_lagged_rows_start_at_the_first_one() -> None:
    # Of each chunk three rows are executed before the next one arrives, seen three steps before that.
    policy = LinePolicy()
    late = Execution("lagged", delay=Delay(3 * STEP_MS))
    assert course(policy, late, 9) == walked(0, 0, 0, 1, 2, 3, 1, 2, 3)


def test_a_query_waits_for_the_one_before() -> None:
    # 1.5 steps a query: it ends between two observations, and the next one takes the newer of these.
    policy = LinePolicy()
    pilot_course = course(policy, Execution("time_aligned", delay=Delay(1.5 * STEP_MS)), 9)
    seen = [float(observation.state[0]) for observation in policy.seen if observation.state is not None]
    queried = [0, 1, 3, 4, 6, 7]
    assert seen == [pytest.approx(([start(), *pilot_course])[step], abs=1e-6) for step in queried]


def test_the_measured_delay_is_that_of_the_query() -> None:
    fast, slow = LinePolicy(query_ms=0.0), LinePolicy(query_ms=2 * STEP_MS)
    measured = Execution("lagged", delay=Delay(0.0, measured=True))
    fixed = Execution("lagged", delay=Delay(2 * STEP_MS))
    assert course(fast, measured, 8) == walked(*range(1, 9))
    assert course(slow, measured, 8) == course(LinePolicy(), fixed, 8)


def test_chunks_that_come_too_late_for_all_rows_are_not_executed() -> None:
    world = LineWorld()
    pilot = PolicyPilot(LinePolicy(), Execution("time_aligned", horizon=2, delay=Delay(3 * STEP_MS)))
    world.begin(EPISODE)
    pilot.begin(world, EPISODE)
    for _ in range(12):
        world.act(pilot.command(world))
    assert world.place == start()
    counts = pilot.counts()
    assert (counts.executed_rows, counts.queries) == (0, 4)
    assert counts.stale_rows == 6  # two of each of the three that have arrived


def test_a_threshold_saves_queries() -> None:
    policy = LinePolicy()
    assert course(policy, Execution("time_aligned", threshold=CHUNK - 4), 12) == walked(*range(1, 13))
    assert len(policy.seen) == 3


def test_relative_actions_are_not_repeated_while_rows_are_missing() -> None:
    world = LineWorld(ActionKind.WAYPOINT)
    course(LinePolicy(), Execution("synchronous", horizon=3, delay=Delay(2 * STEP_MS)), 10, world)
    assert world.idle == 4


def test_past_observations_are_stacked_and_the_missing_ones_marked() -> None:
    policy = LinePolicy(line_spec(observation_steps=3))
    course(policy, Execution("time_aligned"), 3)
    states = [observation.state[:, 0] for observation in policy.seen if observation.state is not None]
    assert [list(state) for state in states] == [walked(0, 0, 0), walked(0, 0, 1), walked(0, 1, 2)]
    valid = [list(observation.valid) for observation in policy.seen if observation.valid is not None]
    assert valid == [[False, False, True], [False, True, True], [True, True, True]]


class Noisy(LinePolicy):
    """Stands for a policy that iterates."""

    def __init__(self) -> None:
        super().__init__()
        self.solver = object()  # type: ignore[assignment]
        self.noises: list[int] = []

    def noise(self, seed: int) -> npt.NDArray[np.float32]:
        return np.array([seed], np.int64)  # type: ignore[return-value]

    def query(self, observation: Observation, *, noise: npt.NDArray[np.float32] | None = None) -> Query:
        assert noise is not None
        self.noises.append(int(noise[0]))
        return super().query(observation)


def test_noise_follows_from_the_episode() -> None:
    first, second = Noisy(), Noisy()
    course(first, Execution(), 5)
    course(second, Execution(), 5)
    assert first.noises == second.noises
    assert len(set(first.noises)) == 5


class Spelling(LinePolicy):
    """Stands for a policy that spells its actions: so many passes and tokens in each query."""

    def __init__(self, *queries: tuple[int, int], fails: bool = False) -> None:
        super().__init__()
        self.decoder = DecoderOptions()
        self.asked: list[str] = []
        self._queries, self._fails = iter(queries), fails

    def set_decoder(self, **options: Any) -> None:
        self.decoder = DecoderOptions(**options)

    def query(self, observation: Observation, *, noise: npt.NDArray[np.float32] | None = None) -> Query:
        if self._fails:
            raise DecodingError("token 9 at place 0 is no action")
        assert self.decoder is not None
        self.asked.append(self.decoder.decoder)
        passes, tokens = next(self._queries)
        spent = tuple(Pass(tokens, 0, (), tokens // passes, 1.0, 0.5) for _ in range(passes))
        decoded = Decoded((0,) * tokens, spent, Exit.FIXED_POINT, True)
        return replace(super().query(observation), decoded=decoded)


def test_how_tokens_were_decoded_is_counted() -> None:
    world, policy = LineWorld(), Spelling((2, 8), (4, 8), (1, 4))
    one, other = (PolicyPilot(policy, Execution(), DecoderOptions(name)) for name in ("jacobi", "auto"))
    world.begin(EPISODE)
    other.begin(world, EPISODE)
    one.begin(world, EPISODE)
    for _ in range(3):
        world.act(one.command(world))
    assert policy.asked == ["jacobi"] * 3
    assert one.counts().decoding == Decoding(passes=7, tokens=20, seconds=3.5, slowest=4.0, fastest=8.0)
    assert other.counts().decoding is None


def test_tokens_that_are_no_actions_end_the_episode() -> None:
    with pytest.raises(PilotFailed, match="tokens are no actions: token 9 at place 0 is no action"):
        course(Spelling(fails=True), Execution(), 1)


class Refusing(LinePolicy):
    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def set_instruction(self, text: str) -> float:
        if self._at == "instruction":
            raise InputError("the instruction is empty")
        return super().set_instruction(text)

    def query(self, observation: Observation, *, noise: npt.NDArray[np.float32] | None = None) -> Query:
        raise InputError("camera 'front' is missing")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (BrokenPolicy(), r"rejected a chunk: .*row 0 of joint 'slide' is nan, expected a finite number"),
        (Refusing("instruction"), "refused the instruction: the instruction is empty"),
        (Refusing("query"), "refused the observation: camera 'front' is missing"),
    ],
)
def test_a_policy_that_cannot_go_on_fails_the_episode(policy: LinePolicy, message: str) -> None:
    with pytest.raises(PilotFailed, match=message):
        course(policy, Execution(), 2)


def test_a_horizon_beyond_the_chunk() -> None:
    with pytest.raises(EvaluationError, match="horizon is 21 rows, expected at most the policy's chunk, 20"):
        PolicyPilot(LinePolicy(), Execution(horizon=CHUNK + 1))


def test_the_small_world_is_a_world() -> None:
    world: World = LineWorld()
    assert world.instructions
