"""Pickles of the protocol are read; everything else is refused, and runs nothing."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import pickletools
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vla_simd_ros.server.errors import WireError
from vla_simd_ros.server.unpickling import read_observation, read_policy_config


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_an_observation_arrives_as_it_was(client: Any, protocol: int) -> None:
    big_endian = np.arange(6, dtype=">f4").reshape(2, 3)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    values = {"big": big_endian, "fortran": fortran, "flag": True, "empty": np.zeros((0, 3), np.uint8)}
    fields = read_observation(client.observation(protocol, values))
    assert fields["timestamp"] == 1000.0 and fields["timestep"] == 0 and fields["must_go"] is False
    observed = fields["observation"]
    np.testing.assert_array_equal(observed["front"], np.arange(288, dtype=np.uint8).reshape(8, 12, 3))
    np.testing.assert_array_equal(observed["big"], big_endian)
    assert observed["big"].dtype == np.float32
    np.testing.assert_array_equal(observed["fortran"], fortran)
    assert observed["lift.pos"] == np.float32(-2) and observed["empty"].shape == (0, 3)
    assert observed["task"] == "wave" and observed["flag"] is True


def test_a_configuration_arrives_as_it_was(client: Any) -> None:
    fields = read_policy_config(client.config())
    assert fields["policy_type"] == "act" and fields["actions_per_chunk"] == 3
    assert fields["lerobot_features"]["observation.state"]["names"] == ["pan.pos", "lift.pos"]


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (os.system, ("touch {}",)),
        (eval, ("open('{}', 'w')",)),
        (exec, ("open('{}', 'w')",)),
        (subprocess.check_output, (["touch", "{}"],)),
        (open, ("{}", "w")),
        (__import__, ("os",)),
        (getattr, (os, "system")),
        (pickle.loads, (b"cos\nsystem\n(S'touch {}'\ntR.",)),
        (np.load, ("{}",)),
        (np.fromfile, ("{}",)),
    ],
)
@pytest.mark.parametrize("place", ["whole", "value", "field"])
def test_exploits_run_nothing(client: Any, tmp_path: Path, function: Any, arguments: Any, place: str) -> None:
    target = tmp_path / "owned"
    filled = [item.format(target) if isinstance(item, str) else item for item in arguments]
    exploit = Call(function, *filled)
    try:
        message = {
            "whole": lambda: pickle.dumps(exploit),
            "value": lambda: client.observation(values={"front": exploit}),
            "field": lambda: client.observation(timestamp=exploit),
        }[place]()
    except TypeError:  # a module cannot be pickled: by name, then
        message = b"\x80\x02cos\nsystem\n."
    with pytest.raises(WireError, match="not part of the protocol"):
        read_observation(message)
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("INST", b"(S'id'\nios\nsystem\n."),
        ("OBJ", b"(cos\nsystem\nS'id'\no."),
        ("PERSID", b"Pfile\n."),
        ("BINPERSID", b"\x80\x02N\x51."),
        ("EXT1", b"\x80\x02\x82\x01."),
        ("NEXT_BUFFER", b"\x80\x05\x97."),
        ("NEWOBJ_EX", b"\x80\x04}}}\x92."),
        ("dotted name", b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93."),
        ("sub-module", b"\x80\x02cnumpy.f2py\nsystem\n."),
    ],
)
def test_opcodes_and_names_outside_the_protocol(name: str, message: bytes) -> None:
    with pytest.raises(WireError, match=r"not part of the protocol|not a pickle"):
        read_observation(message)


def test_a_memo_index_cannot_reserve_memory(client: Any) -> None:
    bomb = b"\x80\x02Nr" + struct.pack("<I", 0xFFFFFF00) + b"."
    with pytest.raises(WireError, match="memo index of 4294967040"):
        read_observation(bomb)


def test_a_byte_array_cannot_be_longer_than_the_message() -> None:
    with pytest.raises(WireError, match="not a pickle"):
        read_observation(b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.")


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([object], dtype=object),
        np.zeros(2, dtype=[("a", "f4")]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.zeros(2, np.complex64),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_of_anything_but_numbers_are_refused(client: Any, array: Any) -> None:
    with pytest.raises(WireError):
        read_observation(client.observation(values={"front": array}))


def test_an_array_whose_bytes_do_not_fit_its_shape(client: Any) -> None:
    class Lying:
        def __reduce__(self) -> Any:
            kind, args, state = np.zeros(4, np.uint8).__reduce__()  # type: ignore[misc]
            return kind, args, (1, (1 << 40,), *state[2:])

    with pytest.raises(WireError, match="with 4 bytes"):
        read_observation(client.observation(values={"front": Lying()}))


def test_objects_where_values_belong(client: Any) -> None:
    inner = pickle.loads(client.observation())
    with pytest.raises(WireError, match="TimedObservation where a value"):
        read_observation(client.observation(values={"front": inner}))
    with pytest.raises(WireError, match="another object"):
        read_observation(client.config())
    with pytest.raises(WireError, match="another object"):
        read_policy_config(pickle.dumps({"policy_type": "act"}))


def test_containers_that_hold_themselves(client: Any) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(WireError, match="nested"):
        read_observation(client.observation(values={"front": endless}))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_never_raises_anything_else(client: Any, data: st.DataObject) -> None:
    message = bytearray(client.observation(values={"front": np.zeros((2, 2, 3), np.uint8)}))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del message[data.draw(st.integers(0, len(message))) :]
    with contextlib.suppress(WireError):
        read_observation(bytes(message))


def test_the_opcodes_that_are_allowed_exist() -> None:
    from vla_simd_ros.server import unpickling

    assert {opcode.name for opcode in pickletools.opcodes} >= unpickling._OPCODES
    names = {op.name for op, _, _ in pickletools.genops(io.BytesIO(pickle.dumps([{"a": (1, 2.5, "b")}])))}
    assert names <= unpickling._OPCODES
