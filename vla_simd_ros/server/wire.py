"""The messages and methods of LeRobot's ``transport.AsyncInference`` gRPC service.

Only what that service uses of its public definition is described here. The descriptors live in a pool of
their own, so that this module and LeRobot's generated code can be loaded into one process.
"""

from __future__ import annotations

import enum
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "transport.AsyncInference"

_Field = descriptor_pb2.FieldDescriptorProto


class TransferState(enum.IntEnum):
    """Which part of a whole a streamed message holds. A whole that fits into one message is an END."""

    UNKNOWN = 0
    BEGIN = 1
    MIDDLE = 2
    END = 3


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="async_inference.proto", package="transport", syntax="proto3"
    )
    states = file.enum_type.add(name="TransferState")
    for state in TransferState:
        states.value.add(name=f"TRANSFER_{state.name}", number=state)
    data = {"name": "data", "type": _Field.TYPE_BYTES}
    transfer_state = {
        "name": "transfer_state",
        "type": _Field.TYPE_ENUM,
        "type_name": ".transport.TransferState",
    }
    fields: dict[str, list[dict[str, Any]]] = {
        "Observation": [transfer_state, data],
        "Actions": [data],
        "PolicySetup": [data],
        "Empty": [],
    }
    for name, members in fields.items():
        message = file.message_type.add(name=name)
        for number, member in enumerate(members, start=1):
            message.field.add(number=number, label=_Field.LABEL_OPTIONAL, **member)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"transport.{name}"))
        for name in fields
    }


_CLASSES = _messages()
Observation: Any = _CLASSES["Observation"]
Actions: Any = _CLASSES["Actions"]
PolicySetup: Any = _CLASSES["PolicySetup"]
Empty: Any = _CLASSES["Empty"]
