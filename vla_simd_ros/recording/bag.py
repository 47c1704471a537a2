"""A rosbag2 recording (MCAP or sqlite3), read without ROS; every way to fail is one clear line."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from vla_simd_ros.package_files import package_folder

PACKAGE = "vla_simd_ros"
_SUFFIXES = (".mcap", ".db3")
_SPARE_BYTES = 20


class BagError(ValueError):
    """A recording that cannot be used; the text names it, what it is, and what is expected."""


@dataclass(frozen=True)
class Recorded:
    """A message, and when the recorder received it."""

    topic: str
    time_ns: int
    message: Any


def message_type(name: str) -> str:
    """The full name of one of our messages, as bags have it."""
    return f"{PACKAGE}/msg/{name}"


def known_types() -> Typestore:
    """The message types of ROS 2 Jazzy and, where their files are there, ours."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for path in sorted(package_folder("msg").glob("*.msg")):
        store.register(get_types_from_msg(path.read_text(encoding="utf-8"), message_type(path.stem)))
    return store


class Bag:
    """An open recording, as a context manager.

    Args:
        path: the folder that ``ros2 bag record`` made, or one .mcap or .db3 file.
        namespace: only topics in it are seen.

    Raises:
        BagError: when it is opened or read: not a recording, or a damaged one.
    """

    def __init__(self, path: Path, namespace: str = "") -> None:
        self.path = path
        self._prefix = f"/{namespace.strip('/')}/" if namespace.strip("/") else "/"
        self._check_path()
        with self._errors("is not a recording that can be read"):
            self._reader = AnyReader([path], default_typestore=known_types())

    def __enter__(self) -> Bag:
        with self._errors("is not a recording that can be read"):
            self._reader.open()
        self._check_types()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.close()

    @property
    def topics(self) -> dict[str, str]:
        """Message type (``package/msg/Name``) by topic, of topics with messages."""
        return {
            connection.topic: connection.msgtype
            for connection in self._reader.connections
            if connection.msgcount and connection.topic.startswith(self._prefix)
        }

    def resolve(self, name: str) -> str:
        """The full name of a topic: a relative one is in the namespace."""
        return name if name.startswith("/") else self._prefix + name

    def topic(self, type_name: str, ending: str = "") -> str | None:
        """The topic of a message type, or None; ``ending`` is how its name has to end.

        Raises:
            BagError: there are several.
        """
        found = [topic for topic, kind in self.topics.items() if kind == type_name and topic.endswith(ending)]
        if len(found) > 1:
            raise BagError(
                f"{self.path}: {type_name} is on {', '.join(sorted(found))}, expected one topic; "
                "--namespace chooses"
            )
        return found[0] if found else None

    def messages(self, topics: Collection[str]) -> Iterator[Recorded]:
        """The messages of some topics in the order of their receipt."""
        connections = [each for each in self._reader.connections if each.topic in topics]
        if not connections:
            return
        with self._errors("is damaged"):
            for connection, time_ns, data in self._reader.messages(connections):
                with self._errors(f"is damaged: {connection.topic}"):
                    message = self._decode(data, connection.msgtype)
                yield Recorded(connection.topic, time_ns, message)

    def _decode(self, data: bytes, kind: str) -> Any:
        """A message; fastrtps leaves unused bytes behind one with empty sequences at its end."""
        for spare in range(0, _SPARE_BYTES, 4):
            try:
                return self._reader.deserialize(data[: len(data) - spare], kind)
            except AnyReaderError as error:
                if "size mismatch" not in str(error):
                    raise
        return self._reader.deserialize(data, kind)

    def _check_path(self) -> None:
        path = self.path
        if not path.exists():
            raise BagError(f"{path}: no such recording")
        if path.is_dir() and not (path / "metadata.yaml").is_file():
            raise BagError(
                f"{path}: a folder without metadata.yaml, expected one that ros2 bag record has made "
                "and finished (ros2 bag reindex completes an interrupted one)"
            )
        if path.is_file() and path.suffix not in _SUFFIXES:
            raise BagError(
                f"{path}: expected the folder of a rosbag2 recording, or a file {' or '.join(_SUFFIXES)}"
            )

    def _check_types(self) -> None:
        """Our messages must have the fields that this version knows."""
        known, recorded = known_types().fielddefs, self._reader.typestore.fielddefs
        for name in known.keys() & recorded.keys():
            have = {field for field, _ in recorded[name][1]}
            missing = [field for field, _ in known[name][1] if field not in have]
            if name.startswith(PACKAGE) and missing:
                raise BagError(
                    f"{self.path}: recorded with another version of {PACKAGE}: {name} lacks {missing[0]}"
                )

    @contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        """The reader's errors as ours: what it raises for a damaged file is of many kinds."""
        try:
            yield
        except BagError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BagError(f"{self.path} {problem}: {reason}") from error
