"""Reading the pickles that LeRobot's client sends, without running anything that they name.

A pickle is a program that may call whatever Python function it names. Here the few names that the protocol
needs are bound to inert stand-ins that only keep what they are given, every other name is refused, and so is
every opcode that the protocol does not need. What was kept is checked and converted afterwards. A short
message can stand for much, as it may name what it holds any number of times: opcodes, values and the bytes of
arrays are counted.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from vla_simd_ros.server.errors import WireError

_HELPERS = "lerobot.async_inference.helpers"

# Opcodes of protocols 2 to 5 for plain data, calls of permitted names, and the state of what they made. None
# of them can import by itself, read from elsewhere, or reserve memory for more than the message holds.
_OPCODES = frozenset((
    "PROTO", "FRAME", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4",
    "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
    "BYTEARRAY8", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS",
    "EMPTY_DICT", "SETITEM", "SETITEMS", "MARK", "POP", "POP_MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT",
    "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD",
))  # fmt: skip
_MEMO_PUTS = frozenset(("BINPUT", "LONG_BINPUT"))
_TEXTS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
# An observation of a thousand joints has some 5000, and as many values as opcodes at most.
_MOST_OPCODES = 20_000
_INTEGER_BITS = 63
_DTYPE = re.compile(r"(b1|[iu][1248]|f[248])")
_MAX_RANK = 8


class _Record:
    """Stands in for a dataclass: keeps its fields."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise WireError("an object whose state is not a set of named fields")
        self.__dict__["fields"] = state


class _TimedObservation(_Record):
    pass


class _RemotePolicyConfig(_Record):
    pass


class _Dtype:
    """Stands in for numpy.dtype: a number type of a known size."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        if not isinstance(code, str) or not _DTYPE.fullmatch(code):
            raise WireError(f"an array of dtype {code!r}, expected numbers")
        self.code = code
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise WireError("an array whose dtype has an unknown byte order")
        self.order = state[1]

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(("<" if self.order in "|=" else self.order) + self.code)


class _Array:
    """Stands in for numpy.ndarray: keeps bytes, type, shape and order, which need not fit each other."""

    parts: tuple[Any, Any, Any, Any] | None = None
    made: np.ndarray[Any, Any] | None = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise WireError("an array whose state is not that of numpy")
        _, shape, dtype, fortran, raw = state
        self.parts = (raw, dtype, shape, "F" if fortran is True else "C")


def _as_array(raw: bytes | bytearray, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    """The array of these bytes; a copy in native byte order."""
    if not isinstance(dtype, _Dtype):
        raise WireError("an array without dtype")
    sizes_fit = isinstance(shape, tuple) and len(shape) <= _MAX_RANK
    if not sizes_fit or not all(type(size) is int and size >= 0 for size in shape):
        raise WireError(f"an array of shape {shape!r}")
    native = dtype.numpy()
    if math.prod(shape) * native.itemsize != len(raw):
        raise WireError(f"an array of shape {shape} and dtype {native} with {len(raw)} bytes")
    if order not in ("C", "F"):
        raise WireError(f"an array in order {order!r}, expected 'C' or 'F'")
    values = np.frombuffer(raw, native).reshape(shape, order=order)
    return np.asarray(values.astype(native.newbyteorder("=")))


class _Function:
    """Stands in for a function. A pickle can also give a state to what it names, which a function of Python
    would keep for all messages to come: this one refuses it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., _Array]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> _Array:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise WireError("a state for a function")


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> _Array:
    array = _Array()
    array.parts = (raw, dtype, shape, order)
    return array


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _scalar(dtype: Any, raw: Any) -> _Array:
    return _from_buffer(raw, dtype, (), "C")


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    (_HELPERS, "TimedObservation"): _TimedObservation,
    (_HELPERS, "RemotePolicyConfig"): _RemotePolicyConfig,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _NAMES[f"{_core}.multiarray", "_reconstruct"] = _Function(_reconstruct)
    _NAMES[f"{_core}.multiarray", "scalar"] = _Function(_scalar)
    _NAMES[f"{_core}.numeric", "_frombuffer"] = _Function(_from_buffer)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise WireError(f"the name {module}.{name}, which is not part of the protocol") from None


def read_observation(data: bytes) -> dict[str, Any]:
    """The fields of a pickled TimedObservation, arrays among them as numpy arrays.

    Raises :class:`WireError` for anything else.
    """
    return _read(data, _TimedObservation, "an observation")


def read_policy_config(data: bytes) -> dict[str, Any]:
    """The fields of a pickled RemotePolicyConfig. Raises :class:`WireError` for anything else."""
    return _read(data, _RemotePolicyConfig, "the policy's configuration")


def _read(data: bytes, kind: type[_Record], what: str) -> dict[str, Any]:
    try:
        _check_opcodes(data)
        record = _Unpickler(io.BytesIO(data)).load()
        if type(record) is not kind:
            raise WireError(f"another object, expected {kind.__name__.lstrip('_')}")
        values = _Values(len(data))
        return {name: values.plain(value) for name, value in getattr(record, "fields", {}).items()}
    except WireError as error:
        raise WireError(f"{what}: the message holds {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise WireError(f"{what}: the message is not a pickle that can be read ({error})") from None


def _check_opcodes(data: bytes) -> None:
    memo_size = 0
    argument: Any
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if number >= _MOST_OPCODES:
            raise WireError(f"more than {_MOST_OPCODES} pickle opcodes")
        if opcode.name not in _OPCODES:
            raise WireError(f"the pickle opcode {opcode.name}, which is not part of the protocol")
        if opcode.name in _MEMO_PUTS:
            # The memo is an array as long as its largest index.
            if argument > memo_size:
                raise WireError(f"a memo index of {argument} after {memo_size} entries")
            memo_size += 1
        elif opcode.name == "MEMOIZE":
            memo_size += 1
        elif opcode.name in _TEXTS:
            _check_text(argument)
        elif isinstance(argument, int) and argument.bit_length() > _INTEGER_BITS:
            raise WireError(f"an integer of {argument.bit_length()} bits, expected {_INTEGER_BITS} at most")


def _check_text(text: str) -> None:
    """Pickles can hold halves of surrogate pairs, which can be sent nowhere, not even in an error."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise WireError(f"the text {text!a:.60}, which is not Unicode") from None


class _Values:
    """Makes values of stand-ins, containers included; raises for what is neither.

    Args:
        size: bytes of the message, which the arrays in it can have together.
    """

    def __init__(self, size: int) -> None:
        self._bytes_left = size
        self._values_left = _MOST_OPCODES

    def plain(self, value: Any, depth: int = 0) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise WireError(f"more than {_MOST_OPCODES} values")
        if isinstance(value, _Array):
            return self._array(value)
        if isinstance(value, (dict, list, tuple)):
            if depth >= _MAX_RANK:
                raise WireError(f"values nested more than {_MAX_RANK} deep")
            if isinstance(value, dict):
                return {self.plain(k, depth + 1): self.plain(v, depth + 1) for k, v in value.items()}
            return type(value)(self.plain(item, depth + 1) for item in value)
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        raise WireError(f"a {type(value).__name__.lstrip('_')} where a value was expected")

    def _array(self, array: _Array) -> Any:
        """Its array, or the number that one without dimensions is; made once."""
        if array.made is None:
            if array.parts is None:
                raise WireError("an array without content")
            raw = array.parts[0]
            if not isinstance(raw, (bytes, bytearray)):
                raise WireError("an array without bytes")
            self._bytes_left -= len(raw)
            if self._bytes_left < 0:
                raise WireError("arrays of more bytes than its own")
            array.made = _as_array(*array.parts)
        return array.made[()]
