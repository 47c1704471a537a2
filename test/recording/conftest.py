"""Recordings made here: rosbag2 folders written by the rosbags library, of runs that are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.interfaces import Nodetype
from rosbags.rosbag2 import StoragePlugin, Writer

from vla_simd_ros.control.latency_budget import QUERY_STAGES, latency_budget
from vla_simd_ros.recording.bag import known_types, message_type

MS = 1_000_000
START = 1_700_000_000_000 * MS
PERIOD = 33 * MS
JOINTS = ["pan", "lift"]
STORAGES = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}


class BagMaker:
    """Collects messages, then writes them in the order of their times."""

    def __init__(self) -> None:
        self.store = known_types()
        self._messages: list[tuple[int, str, str, bytes]] = []

    def add(self, topic: str, kind: str, time_ns: int, **values: Any) -> None:
        """A message; fields that are not named have their defaults. ``stamp`` is the header's, ns."""
        if "stamp" in values:
            sec, nanosec = divmod(values.pop("stamp"), 1000 * MS)
            values["header"] = {"stamp": {"sec": sec, "nanosec": nanosec}}
        data = self.store.serialize_cdr(self._build(kind, values), kind)
        self._messages.append((time_ns, topic, kind, bytes(data)))

    def write(self, folder: Path, storage: str = "mcap") -> Path:
        connections: dict[str, Any] = {}
        with Writer(folder, version=9, storage_plugin=STORAGES[storage]) as writer:
            for time_ns, topic, kind, data in sorted(self._messages, key=lambda each: each[0]):
                if topic not in connections:
                    connections[topic] = writer.add_connection(topic, kind, typestore=self.store)
                writer.write(connections[topic], time_ns, data)
        return folder

    def _build(self, kind: str, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        made = {
            name: self._field(description, values.get(name))
            for name, description in self.store.fielddefs[kind][1]
        }
        unknown = values.keys() - made.keys()
        assert not unknown, f"{kind} has no {unknown}"
        return self.store.types[kind](**made)

    def _field(self, description: Any, value: Any) -> Any:
        node, detail = description
        if node is Nodetype.NAME:
            return self._build(detail, {} if value is None else value)
        if node is Nodetype.BASE:
            return ("" if detail[0] == "string" else 0) if value is None else value
        inner = detail[0]
        items = [] if value is None else value
        if inner[0] is Nodetype.BASE and inner[1][0] != "string":
            return np.asarray(items, dtype=np.dtype(inner[1][0].replace("octet", "uint8")))
        return [self._build(inner[1], item) if inner[0] is Nodetype.NAME else item for item in items]


@dataclass
class Scene:
    """A run that never starves, and what goes wrong in it. Times in milliseconds from its start.

    Frames come every 33 ms and take 5; a query takes 100 and its chunk 2 more; 9 rows of 33 ms are executed.
    """

    length: int = 4000
    window: int = 9
    query_ms: Callable[[int], float] = lambda number: 100.0
    delivery_ms: Callable[[int], float] = lambda number: 2.0
    transport_ms: Callable[[int], float] = lambda time: 5.0
    camera_off: tuple[int, int] = (-1, -1)
    lost: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    record_frames: bool = True
    without: tuple[str, ...] = ()
    maker: BagMaker = field(default_factory=BagMaker)

    def write(self, folder: Path, storage: str = "mcap") -> Path:
        self._run_policy()
        self._run_executor()
        return self.maker.write(folder, storage)

    def _run_policy(self) -> None:
        self.chunks: list[tuple[int, float, int, float]] = []
        frames = []
        for time in range(0, self.length, 33):
            if not self.camera_off[0] <= time < self.camera_off[1]:
                frames.append((time, time + self.transport_ms(time)))
        for time, received in frames if self.record_frames else ():
            self._add("/camera/front/image_raw", "sensor_msgs/msg/Image", received, stamp=START + time * MS)
        free, number, used = 0.0, 0, -1
        while True:
            ready = [frame for frame in frames if frame[0] > used and frame[1] <= free]
            coming = [frame for frame in frames if frame[0] > used]
            if not coming:
                return
            capture, received = ready[-1] if ready else coming[0]
            number, used, start = number + 1, capture, max(free, received)
            free = start + self.query_ms(number) + 1.0
            if free > self.length:
                return
            self._publish(number, capture, received, start, free)

    def _publish(self, number: int, capture: int, received: float, start: float, published: float) -> None:
        query = self.query_ms(number)
        stages = dict.fromkeys(QUERY_STAGES, 0.0)
        stages.update(
            transport_ms=received - capture, wait_ms=start - received, query_ms=query, publish_ms=1.0
        )
        sec, nanosec = divmod(START + capture * MS, 1000 * MS)
        timing = {
            "header": {"stamp": {"sec": sec, "nanosec": nanosec}},
            "sequence": number, "epoch": 1, "observation_age_ms": start - capture, "total_ms": query,
            "observation_to_publish_ms": published - capture, **stages,
        }  # fmt: skip
        self._add("/query_timing", message_type("QueryTiming"), published, **timing)
        if number in self.lost:
            return
        arrival = published + self.delivery_ms(number)
        self._add(
            "/action_chunk", message_type("ActionChunk"), arrival, stamp=START + capture * MS,
            sequence=number, epoch=1, policy="act", action_names=JOINTS, step_period=0.033,
            horizon=self.window, window=self.window, actions=np.zeros(2 * self.window), timing=timing,
        )  # fmt: skip
        self.chunks.append((number, arrival, capture, published))
        self._stages = {**getattr(self, "_stages", {}), number: stages}

    def _run_executor(self) -> None:
        executed, seen, rejections, started = 0, set(), 0, False
        for tick in range(0, self.length, 33):
            for number, arrival, _, _ in self.chunks:
                if number in self.rejected and tick - 33 < arrival <= tick:
                    rejections += 1
            usable = [
                chunk for chunk in self.chunks
                if chunk[0] not in self.rejected and chunk[1] <= tick < chunk[2] + 33 * self.window
            ]  # fmt: skip
            state, values = (3 if started else 1), {}
            if usable:
                number, arrival, capture, published = usable[-1]
                state, started, executed = 2, True, executed + 1
                row = (tick - capture) // 33
                values = {
                    "executed_row": row, "executed_row_age_ms": float(tick - capture), "sequence": number,
                }  # fmt: skip
                if number not in seen:
                    seen.add(number)
                    self._budget(number, row, capture, published, arrival, tick)
                self._add(
                    "/joint_trajectory", "trajectory_msgs/msg/JointTrajectory", tick, joint_names=JOINTS,
                    points=[{"positions": np.array([np.sin(tick / 500.0), np.cos(tick / 700.0)])}],
                )  # fmt: skip
            self._add(
                "/joint_states", "sensor_msgs/msg/JointState", tick, stamp=START + tick * MS, name=JOINTS,
                position=[0.0, 1.0],
            )  # fmt: skip
            self._add(
                "/executor_state", message_type("ExecutorState"), tick, stamp=START + tick * MS,
                mode="time_aligned", state=state, executed_steps=executed, chunks_rejected=rejections,
                rejection_reasons=["wrong_shape"] if rejections else [],
                rejection_counts=[rejections] if rejections else [], **values,
            )  # fmt: skip
        self._add("/instruction", "std_msgs/msg/String", 1, data="pick <it> up")

    def _budget(
        self, number: int, row: int, capture: int, published: float, arrival: float, tick: int
    ) -> None:
        budget = latency_budget(
            self._stages[number], capture * MS, published - capture, round(arrival * MS), tick * MS
        )
        self._add(
            "/latency_budget", message_type("LatencyBudget"), tick, stamp=START + capture * MS,
            sequence=number, row=row, total_ms=budget.total_ms, unaccounted_ms=budget.unaccounted_ms,
            **budget.stages,
        )  # fmt: skip

    def _add(self, topic: str, kind: str, time_ms: float, **values: Any) -> None:
        if topic not in self.without:
            self.maker.add(topic, kind, START + round(time_ms * MS), **values)


@pytest.fixture
def bag_maker() -> BagMaker:
    return BagMaker()


@pytest.fixture
def scene() -> type[Scene]:
    return Scene
