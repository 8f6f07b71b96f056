"""Protobuf messages declared in Python and built at run time, without a compiler or generated code.

Only fields that are read need to be declared; protobuf skips the rest. Each declaration reads like its `.proto`:
``{"Position": {"ledgerId": required("int64", 1)}}``; the type is a scalar's, or the name of a message or enum of the
same declaration. Field names matter where BookKeeper writes protobuf's text format.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

Field = tuple[str, int, str]
"""A type, a number, and how often it stands."""


def required(kind: str, number: int) -> Field:
    """A field without which the message is none."""
    return kind, number, "REQUIRED"


def optional(kind: str, number: int) -> Field:
    """A field that may be missing."""
    return kind, number, "OPTIONAL"


def repeated(kind: str, number: int) -> Field:
    """A field that stands any number of times."""
    return kind, number, "REPEATED"


def build(
    package: str, messages: Mapping[str, Mapping[str, Field]], enums: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Make a class of each message, by its name.

    Args:
        package: a name of its own, in which the messages refer to each other.
        messages: the fields of each, by name.
        enums: the numbers of each one's values, by name.
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (kind, number, label) in fields.items():
            added = message.field.add(name=field, number=number, label=f"LABEL_{label}")
            if kind in messages or kind in enums:
                added.type = FieldDescriptorProto.TYPE_ENUM if kind in enums else FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".{package}.{kind}"
            else:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def parse(message: Any, data: bytes) -> Any:
    """A message of a class that `build` made, from its bytes.

    Raises:
        ValueError: they are not such a message. What they hold is not quoted: ledgers carry a password.
    """
    try:
        return checked(message.FromString(data))
    except DecodeError:
        raise ValueError(f"it is no {message.DESCRIPTOR.name}") from None


def checked(message: Any) -> Any:
    """A message, when all its required fields are there; raises ValueError when not."""
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise ValueError(f"it is no {message.DESCRIPTOR.name}: it lacks {missing}")
    return message
