"""Parses JSON of other systems: every defect raises the same error."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

Kind = TypeVar("Kind")


class UnreadableJsonError(ValueError):
    """The message names the defect, and quotes none of the text."""


def read_json(text: bytes | str, kind: type[Kind]) -> Kind:
    """Decode JSON as a type that msgspec supports.

    Raises UnreadableJsonError if the text is no JSON, not UTF-8, nested too deeply, or has another shape.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise UnreadableJsonError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise UnreadableJsonError(f"it is not UTF-8: byte {error.object[error.start]:#04x}") from None
    except msgspec.MsgspecError as error:
        raise UnreadableJsonError(str(error)) from None


# Protobuf messages that are declared in Python and built at run time, without a compiler or generated code.
#
# A declaration needs only the fields that are read; protobuf skips the others. It looks like a `.proto` file:
# ``{"Position": {"ledgerId": "required int64 1"}}``. The type is a scalar, or a message or enum of the declaration.
# Field names matter only for protobuf's text format, which BookKeeper uses.


def build(
    package: str, messages: Mapping[str, Mapping[str, str]], enums: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Make the class of each message, by its name.

    Every call needs its own `package`. `messages` has the fields of each message, and `enums` the values of each enum.
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, declared in fields.items():
            label, kind, tag = declared.split()
            added = message.field.add(name=field, number=int(tag), label=f"LABEL_{label.upper()}")
            if kind in messages or kind in enums:
                added.type = FieldDescriptorProto.TYPE_ENUM if kind in enums else FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".{package}.{kind}"
            else:
                added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def parse(message: Any, data: bytes) -> Any:
    """Parse a message of a class that `build` made.

    Raises ValueError if the bytes are no such message. The error does not quote them, because ledgers carry a password.
    """
    try:
        return checked(message.FromString(data))
    except DecodeError:
        raise ValueError(f"it is no {message.DESCRIPTOR.name}") from None


def checked(message: Any) -> Any:
    """Return the message if it has all required fields, else raise ValueError."""
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise ValueError(f"it is no {message.DESCRIPTOR.name}: it lacks {missing}")
    return message
