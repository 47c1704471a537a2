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


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return pickle.BINUNICODE + struct.pack("<I", len(data)) + data


def name(module: str, attribute: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{attribute}\n".encode()


def observing(value: bytes, timestep: bytes = b"K\x00") -> bytes:
    """An observation, written by opcode, that has seen what these opcodes leave on the stack."""
    seen = b"}" + text("front") + value + b"s"
    fields = b"}(" + text("timestamp") + b"G" + struct.pack(">d", 1.0) + text("timestep") + timestep
    kind = name("lerobot.async_inference.helpers", "TimedObservation")
    return b"\x80\x02" + kind + b")R" + fields + text("observation") + seen + b"ub."


RECONSTRUCT = name("numpy.core.multiarray", "_reconstruct")
FROM_BUFFER = name("numpy.core.numeric", "_frombuffer")
BYTES_DTYPE = name("numpy", "dtype") + text("u1") + b"\x85R"


@pytest.mark.parametrize(
    "state", [b"}" + text("kept") + b"K\x07s", b"N}" + text("__defaults__") + b"(K\x01K\x02ts\x86"]
)
def test_a_function_keeps_no_state(state: bytes) -> None:
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        with pytest.raises(WireError, match="a state for a function"):
            read_observation(observing(name(module, "_reconstruct") + state + b"b"))
    with pytest.raises(WireError, match="not a pickle"):
        read_observation(observing(name("numpy", "ndarray") + state + b"b"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (name("numpy", "ndarray") + b")\x81", "an array without content"),
        (RECONSTRUCT + b")R", "an array without content"),
        (FROM_BUFFER + b"(NN)" + text("C") + b"tR", "an array without bytes"),
        (FROM_BUFFER + b"(C\x01aN" + b"K\x01\x85" + text("C") + b"tR", "an array without dtype"),
        (FROM_BUFFER + b"(C\x01a" + BYTES_DTYPE + b"K\x01\x85" + text("K") + b"tR", "an array in order 'K'"),
        (name("numpy", "dtype") + b")\x81", "a Dtype where"),
    ],
)
def test_half_made_objects(value: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        read_observation(observing(value))


def test_integers_longer_than_any_number_of_the_protocol() -> None:
    raw = (-(10**5000)).to_bytes(2100, "little", signed=True)
    with pytest.raises(WireError, match="an integer of 16610 bits"):
        read_observation(observing(b"N", b"\x8b" + struct.pack("<i", len(raw)) + raw))
    assert read_observation(observing(b"N", b"\x8a\x08" + b"\xff" * 7 + b"\x7f"))["timestep"] == 2**63 - 1


def test_texts_that_are_not_unicode() -> None:
    with pytest.raises(WireError, match="not Unicode") as raised:
        read_observation(observing(text("half \ud800")))
    str(raised.value).encode()  # it can be sent


def test_few_bytes_that_stand_for_many_values() -> None:
    """A list of thousands of times the same list of thousands of times the same."""
    value = b"](" + b"K\x01" * 200 + b"eq\x00"
    for level in (1, 2, 3):
        value = b"](" + value + (b"h" + bytes([level - 1])) * 199 + b"eq" + bytes([level])
    assert len(value) < 2000
    with pytest.raises(WireError, match="more than 20000 values"):
        read_observation(observing(value))


def test_few_bytes_that_stand_for_many_arrays() -> None:
    raw = b"B" + struct.pack("<I", 4000) + bytes(4000) + b"q\x00"
    array = (
        FROM_BUFFER + b"(h\x00" + BYTES_DTYPE + b"M" + struct.pack("<H", 4000) + b"\x85" + text("C") + b"tR"
    )
    with pytest.raises(WireError, match="arrays of more bytes than its own"):
        read_observation(observing(b"](" + raw + array * 5 + b"e"))


def test_one_array_in_several_places_counts_once(client: Any) -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    observed = read_observation(client.observation(values={f"camera {i}": picture for i in range(30)}))
    np.testing.assert_array_equal(observed["observation"]["camera 29"], picture)


def test_messages_of_nothing_but_opcodes() -> None:
    with pytest.raises(WireError, match="more than 20000 pickle opcodes"):
        read_observation(observing(b"](" + b"]" * 20_000 + b"e"))


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
