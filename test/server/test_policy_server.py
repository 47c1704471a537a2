"""The whole service over a real connection, with a real policy."""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from iterating_policy import ROWS, SIDE, WIDTH, IteratingPolicy, expected_actions
from spelling_policy import SpellingPolicy

from vla_simd_ros import inference
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.inference import Observation, Policy
from vla_simd_ros.server import policy_server, wire
from vla_simd_ros.server.catalog import FixedPolicy, PolicyFolder
from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.policy_server import PolicyServer, PolicyServicer, ServerSettings, join

SIZES = {
    "chunk_size": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dim_model": 64,
    "heads": 4,
    "feedforward": 64,
}
OPTIONS = Options(seed=3, cameras=(Camera("front", 64, 96),), state_dim=2, action_dim=2, sizes=SIZES)
IMAGE = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoints") / "act"
    make_checkpoint("act", path, OPTIONS)
    return path


class Robot:
    """A client by hand: the calls of LeRobot's own."""

    def __init__(self, port: int, client: Any) -> None:
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{port}",
            # A connection of its own, as a client in another process has.
            options=[("grpc.use_local_subchannel_pool", 1)],
        )
        self.client = client

    def call(self, method: str, message: Any) -> Any:
        takes = wire.Actions if method == "GetActions" else wire.Empty
        path = f"/{wire.SERVICE}/{method}"
        if method == "SendObservations":
            stream = self._channel.stream_unary(path, type(message[0]).SerializeToString, takes.FromString)
            return stream(iter(message), timeout=30)
        unary = self._channel.unary_unary(path, type(message).SerializeToString, takes.FromString)
        return unary(message, timeout=30)

    def start(self, **changes: Any) -> None:
        self.call("Ready", wire.Empty())
        self.call("SendPolicyInstructions", wire.PolicySetup(data=self.client.config(**changes)))

    def send(self, data: bytes, size: int = 1 << 21) -> None:
        self.call("SendObservations", pieces(data, size))

    def observe(self, step: int = 0, values: Any = None, **changes: Any) -> None:
        shown = {"front": IMAGE, **(values or {})}
        self.send(self.client.observation(values=shown, timestep=step, must_go=True, **changes))

    def actions(self) -> Any:
        data = self.call("GetActions", wire.Empty()).data
        return pickle.loads(data) if data else None

    def close(self) -> None:
        self._channel.close()


def pieces(data: bytes, size: int) -> list[Any]:
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    states = [wire.TransferState.MIDDLE] * len(parts)
    states[0], states[-1] = wire.TransferState.BEGIN, wire.TransferState.END
    return [wire.Observation(transfer_state=s, data=d) for s, d in zip(states, parts, strict=True)]


@pytest.fixture
def connect(folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    torch = types.ModuleType("torch")
    torch.tensor = lambda values: np.array(values, np.float32)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    helpers: Any = sys.modules["lerobot.async_inference.helpers"]
    helpers.TimedAction = lambda timestamp, timestep, action: (timestamp, timestep, action)
    settings = ServerSettings(port=0, rate=10, observation_timeout_s=0.05, max_observation_bytes=100_000)
    server = PolicyServer(PolicyServicer(FixedPolicy(folder, Policy.load), settings), settings)
    server.start()
    robots: list[Robot] = []

    def make() -> Robot:
        robots.append(Robot(server.port, client))
        return robots[-1]

    yield make
    for robot in robots:
        robot.close()
    server.stop()


@pytest.fixture
def robot(connect: Any) -> Robot:
    return connect()


def status(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code(), raised.value.details()


def test_actions_are_those_of_the_policy(robot: Robot, folder: Path) -> None:
    robot.start()
    robot.observe(step=40)
    chunk = robot.actions()
    expected = Policy.load(folder).query(Observation({"front": IMAGE}, np.array([1.5, -2.0])))
    assert [step for _, step, _ in chunk] == [40, 41, 42]
    np.testing.assert_allclose([time for time, _, _ in chunk], [1000.0, 1000.1, 1000.2])
    np.testing.assert_array_equal(np.stack([action for _, _, action in chunk]), expected.actions[:3])


def test_an_observation_in_many_pieces_and_of_another_size(robot: Robot) -> None:
    robot.start()
    image = np.full((32, 48, 3), 7, np.uint8)
    robot.send(robot.client.observation(values={"front": image}), size=1000)
    assert len(robot.actions()) == 3


def test_no_observation_no_actions(robot: Robot) -> None:
    robot.start()
    assert robot.actions() is None


def test_order_of_calls(robot: Robot) -> None:
    code, text = status(robot.actions)
    assert code == grpc.StatusCode.FAILED_PRECONDITION and "Ready" in text
    robot.call("Ready", wire.Empty())
    code, text = status(robot.actions)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "SendPolicyInstructions" in text


def test_one_client_at_a_time(connect: Any) -> None:
    first, second = connect(), connect()
    first.start()
    code, text = status(second.start)
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "another client" in text
    first.observe()
    assert len(first.actions()) == 3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"policy_type": "diffusion"}, "type 'diffusion', served is 'act'"),
        ({"lerobot_features": {}}, "state has 0 values"),
        ({"actions_per_chunk": -1}, "actions_per_chunk is -1"),
    ],
)
def test_a_robot_that_does_not_fit(robot: Robot, changes: Any, complaint: str) -> None:
    code, text = status(lambda: robot.start(**changes))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and complaint in text
    robot.start()


def test_a_robot_with_another_camera(robot: Robot) -> None:
    features = {"observation.state": {"dtype": "float32", "shape": (2,), "names": ["pan.pos", "lift.pos"]}}
    code, text = status(lambda: robot.start(lerobot_features=features))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "cameras are none, the policy expects front" in text


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"pan.pos": float("nan")}, "'pan.pos' is nan"),
        ({"pan.pos": "far"}, "'pan.pos' is 'far'"),
        ({"front": np.zeros((64, 96), np.uint8)}, "camera 'front' is uint8 [64, 96]"),
        ({"front": np.zeros((64, 96, 3), np.float32)}, "camera 'front' is float32"),
        ({"front": None}, "camera 'front' is missing"),
    ],
)
def test_bad_values_are_errors_and_the_server_goes_on(robot: Robot, values: Any, complaint: str) -> None:
    robot.start()
    robot.observe(values=values)
    code, text = status(robot.actions)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and complaint in text
    robot.observe(step=1)
    assert len(robot.actions()) == 3


def test_messages_that_are_no_observation(robot: Robot) -> None:
    robot.start()
    for data in (b"", b"garbage", b"\x80\x02cos\nsystem\n."):
        code, text = status(lambda data=data: robot.send(data or b" "))
        assert code == grpc.StatusCode.INVALID_ARGUMENT and "observation" in text
    code, text = status(lambda: robot.send(b"x" * 100_001))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "larger than 100000 bytes" in text


def test_what_a_client_wrote_comes_back_short_and_without_control_characters(robot: Robot) -> None:
    code, text = status(lambda: robot.start(policy_type="\x1b[2J\n" + "x" * 20_000))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert r"of type '\x1b[2J\nxxx" in text and len(text) < 1100


def test_joining_pieces() -> None:
    part = wire.Observation
    begin, middle, end = (wire.TransferState[name] for name in ("BEGIN", "MIDDLE", "END"))
    stream = [
        part(transfer_state=s, data=d) for s, d in ((begin, b"a"), (begin, b"b"), (middle, b"c"), (end, b"d"))
    ]
    assert join(iter(stream), 10) == b"bcd"
    with pytest.raises(WireError, match="without its last piece"):
        join(iter(stream[:3]), 10)
    with pytest.raises(WireError, match="unknown transfer state 0"):
        join(iter([part(data=b"a")]), 10)


def test_an_instruction_comes_with_the_observation(tmp_path: Path, client: Any) -> None:
    make_checkpoint("impact", tmp_path / "impact", OPTIONS)
    context = types.SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")
    settings = ServerSettings(observation_timeout_s=0.05)
    policy = Policy.load(tmp_path / "impact")
    told: list[str] = []
    set_instruction = policy.set_instruction

    def note(text: str) -> float:
        spent = set_instruction(text)
        if spent:
            told.append(text)
        return spent

    policy.set_instruction = note  # type: ignore[method-assign]
    servicer: Any = PolicyServicer(lambda _: policy, settings)
    servicer.ready(wire.Empty(), context)
    servicer.send_policy_instructions(wire.PolicySetup(data=client.config(policy_type="impact")), context)
    for step, task in enumerate(("wave", "wave", "point")):
        data = client.observation(values={"front": IMAGE, "task": task}, timestep=step, must_go=True)
        servicer.send_observations(iter(pieces(data, 1 << 21)), context)
        assert servicer.get_actions(wire.Empty(), context).data
    assert told == ["wave", "point"]


def test_policies_below_a_folder(folder: Path, tmp_path: Path) -> None:
    loads: list[Path] = []

    def load(path: Path) -> Policy:
        loads.append(path)
        return Policy.load(path)

    catalog = PolicyFolder(folder.parent, load)
    request = types.SimpleNamespace(checkpoint="act")
    assert catalog(request) is catalog(request)  # type: ignore[arg-type]
    assert loads == [folder.resolve()]
    for path in ("../../etc", "/etc", "nothing", str(tmp_path)):
        with pytest.raises(WireError, match="there is no checkpoint"):
            catalog(types.SimpleNamespace(checkpoint=path))  # type: ignore[arg-type]
    with pytest.raises(NotADirectoryError):
        PolicyFolder(tmp_path / "missing", load)


def test_a_policy_that_iterates_and_looks_back(
    folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its step before is found by the client's time, whatever the order of arrival."""
    definition = IteratingPolicy(observation_steps=2)
    monkeypatch.setattr(inference, "define_policy", lambda checkpoint: definition)
    policy = Policy.load(folder, executor="reference", seed=3)
    settings = ServerSettings(observation_timeout_s=0.05, rate=10.0, num_steps=6)
    context = types.SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")
    servicer: Any = PolicyServicer(lambda _: policy, settings)
    servicer.ready(wire.Empty(), context)
    setup = wire.PolicySetup(data=client.config(policy_type="iterating"))
    servicer.send_policy_instructions(setup, context)
    monkeypatch.setattr(policy_server, "dump_actions", lambda rows, *_: rows.astype(np.float32).tobytes())
    pictures = [np.full((SIDE, SIDE, 3), shade, np.uint8) for shade in (40, 90, 160)]
    for step in (1, 0, 2):
        values = {"front": pictures[step], "pan.pos": float(step), "lift.pos": 0.5}
        data = client.observation(values=values, timestep=step, timestamp=50.0 + 0.1 * step, must_go=True)
        servicer.send_observations(iter(pieces(data, 1 << 21)), context)
    actions = np.frombuffer(servicer.get_actions(wire.Empty(), context).data, np.float32).reshape(-1, 2)
    noise = np.random.default_rng(3).standard_normal((ROWS, WIDTH), np.float32)
    states = np.array([[1.0, 0.5], [2.0, 0.5]])
    expected = expected_actions(np.stack(pictures[1:]), states, noise, 6, mask=np.array([1, 1]))
    np.testing.assert_allclose(actions, expected[:3], atol=2e-6)
    assert definition.solver.asked == [6]


def test_a_chunk_that_has_not_converged_is_not_sent(
    folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inference, "define_policy", lambda checkpoint: SpellingPolicy(text=False, seed=1))
    policy = Policy.load(folder, executor="reference", decoder="autoregressive")
    context = types.SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")
    servicer: Any = PolicyServicer(lambda _: policy, ServerSettings(observation_timeout_s=0.05))
    servicer.ready(wire.Empty(), context)
    values = {"pan.pos": 1.0, "lift.pos": 0.5}
    state = {"dtype": "float32", "shape": (2,), "names": ["pan.pos", "lift.pos"]}
    config = client.config(policy_type="spelling", lerobot_features={"observation.state": state})
    servicer.send_policy_instructions(wire.PolicySetup(data=config), context)
    sent = []
    for step, passes in enumerate((1, 0)):
        policy.set_decoder("autoregressive", max_passes=passes)
        data = client.observation(values=values, timestep=step, timestamp=50.0 + step, must_go=True)
        servicer.send_observations(iter(pieces(data, 1 << 21)), context)
        sent.append(servicer.get_actions(wire.Empty(), context).data)
    assert sent[0] == b"" and sent[1]
    assert "observation 0: its tokens have not converged (max_passes)" in caplog.text


def test_steps_that_a_policy_does_not_take_are_refused_with_its_request(folder: Path, client: Any) -> None:
    refused: list[str] = []

    class Context:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

        def abort(self, code: Any, text: str) -> None:
            refused.append(text)
            raise InterruptedError

    policy = Policy.load(folder, executor="reference")
    servicer: Any = PolicyServicer(lambda _: policy, ServerSettings(num_steps=4))
    servicer.ready(wire.Empty(), Context())
    with pytest.raises(InterruptedError):
        servicer.send_policy_instructions(wire.PolicySetup(data=client.config()), Context())
    assert "the policy 'act' has no solver" in refused[0]
