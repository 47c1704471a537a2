"""One client at a time, and the newest observation that is worth a query."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.requests import PolicyRequest, TimedObservation
from vla_simd_ros.server.session import ClientSlot, ObservationHistory, ObservationSlot

REQUEST = PolicyRequest("act", "x", 10, ("a", "b"), {}, "cpu")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def observation(step: int, a: float, must_go: bool = False) -> TimedObservation:
    return TimedObservation(0.0, step, {"a": a, "b": 0.0}, must_go)


def test_a_second_client_waits_until_the_first_is_gone() -> None:
    clock = Clock()
    slot = ClientSlot(clock, idle_s=10)
    slot.claim("ipv4:1.1.1.1:5000")
    with pytest.raises(WireError, match=r"another client \(ipv4:1.1.1.1:5000\)"):
        slot.claim("ipv4:1.1.1.1:6000")
    with pytest.raises(WireError, match="has not called Ready"):
        slot.check("ipv4:1.1.1.1:6000")
    clock.now += 9
    slot.touch("ipv4:1.1.1.1:6000")  # not its call
    slot.touch("ipv4:1.1.1.1:5000")
    clock.now += 9
    with pytest.raises(WireError, match="another client"):
        slot.claim("ipv4:2.2.2.2:6000")
    clock.now += 2
    slot.claim("ipv4:2.2.2.2:6000")
    with pytest.raises(WireError, match="another one is being served"):
        slot.check("ipv4:1.1.1.1:5000")


def test_a_client_may_come_back_from_another_port_of_its_host_only() -> None:
    clock = Clock()
    slot = ClientSlot(clock, idle_s=10)
    slot.claim("ipv4:1.1.1.1:5000")
    clock.now += 11
    with pytest.raises(WireError):
        slot.check("ipv4:2.2.2.2:5000")
    slot.check("ipv4:1.1.1.1:5001")
    with pytest.raises(WireError):
        slot.check("ipv4:1.1.1.1:5000")


def test_nobody_is_served_before_ready() -> None:
    with pytest.raises(WireError, match="has not called Ready"):
        ClientSlot(Clock(), idle_s=10).check("ipv4:1.1.1.1:5000")


def test_the_newest_observation_replaces_one_that_waits() -> None:
    slot = ObservationSlot(least_motion=1.0)
    for step in range(3):
        assert slot.offer(observation(step, a=step), REQUEST)
    taken = slot.take(0)
    assert taken is not None and taken.timestep == 2
    assert slot.take(0) is None


def test_what_is_skipped() -> None:
    slot = ObservationSlot(least_motion=1.0)
    slot.offer(observation(5, a=0.0), REQUEST)
    slot.take(0)
    assert not slot.offer(observation(5, a=9.0), REQUEST)  # its step was predicted from
    assert not slot.offer(observation(6, a=0.99), REQUEST)  # hardly moved
    assert slot.offer(observation(6, a=1.0), REQUEST)
    assert slot.offer(observation(5, a=0.0, must_go=True), REQUEST)
    slot.reset()
    assert slot.take(0) is None
    assert slot.offer(observation(5, a=0.0), REQUEST)


def test_a_robot_that_has_executed_all_rows_is_never_skipped() -> None:
    slot = ObservationSlot(least_motion=1.0)
    first = observation(0, a=0.0, must_go=True)
    slot.offer(first, REQUEST)
    assert slot.take(0) is first
    slot.answered(first, 10)
    assert not slot.offer(observation(8, a=0.0), REQUEST)
    assert slot.offer(observation(9, a=0.0), REQUEST)
    last = slot.take(0)
    assert last is not None
    assert not slot.offer(observation(9, a=0.0), REQUEST)  # its step is being predicted from
    slot.answered(last, 10)
    assert not slot.offer(observation(17, a=0.0), REQUEST)
    assert slot.offer(observation(18, a=0.0), REQUEST)
    slot.reset()
    assert slot.offer(observation(0, a=0.0), REQUEST)


def test_a_request_wakes_when_an_observation_comes() -> None:
    slot = ObservationSlot(least_motion=1.0)
    taken: list[Any] = []
    waiting = threading.Thread(target=lambda: taken.append(slot.take(30)))
    waiting.start()
    slot.offer(observation(1, a=0.0), REQUEST)
    waiting.join(30)
    assert taken[0].timestep == 1


def at(timestamp: float) -> TimedObservation:
    return TimedObservation(timestamp, 0, {"a": timestamp}, False)


def test_the_observations_before_are_found_by_their_time() -> None:
    history = ObservationHistory(rate=10.0)
    present = at(1001.0)
    for timestamp in (1000.96, 1000.8, 1001.0, 1000.9, 1000.72, 1001.1):
        history.add(at(timestamp))
    found = history.before(present, 4)
    assert [each and each.timestamp for each in found] == [1000.72, 1000.8, 1000.9]
    assert history.before(present, 1) == []


def test_observations_that_there_were_not() -> None:
    history = ObservationHistory(rate=10.0)
    for timestamp in (1000.0, 1000.56, 1001.0):
        history.add(at(timestamp))
    assert history.before(at(1001.0), 3) == [None, None]
    history.reset()
    assert history.before(at(1000.1), 2) == [None]


def test_a_clients_memory_is_bounded() -> None:
    history = ObservationHistory(rate=10.0)
    for step in range(1000):
        history.add(at(1000.0 + 0.01 * step))
    assert len(history._samples) == 32
