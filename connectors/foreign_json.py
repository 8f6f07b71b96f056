"""Parses JSON of other systems: every defect raises the same error."""

from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")


class UnreadableJsonError(ValueError):
    """The message names the defect, and quotes none of the text."""


def read_json(text: bytes | str, kind: type[Kind]) -> Kind:
    """Decode JSON as a type that msgspec supports.

    Raises:
        UnreadableJsonError: the text is no JSON, not UTF-8, nested too deeply, or has another shape.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise UnreadableJsonError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise UnreadableJsonError(f"it is not UTF-8: byte {error.object[error.start]:#04x}") from None
    except msgspec.MsgspecError as error:
        raise UnreadableJsonError(str(error)) from None
