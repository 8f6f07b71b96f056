"""Parses JSON from elsewhere: any defect raises one and the same error."""

from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")


class UnreadableJsonError(ValueError):
    """The message says what is wrong with it; it quotes nothing."""


def read_json(text: bytes | str, kind: type[Kind]) -> Kind:
    """Decode it as a type that msgspec knows.

    Raises:
        UnreadableJsonError: it is no JSON, not UTF-8, nested too deeply, or of another shape.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise UnreadableJsonError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise UnreadableJsonError(f"it is not UTF-8: byte {error.object[error.start]:#04x}") from None
    except msgspec.MsgspecError as error:
        raise UnreadableJsonError(str(error)) from None
