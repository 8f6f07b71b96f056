"""Keeps secrets out of errors and logs; the base of settings blocks with secrets, whose errors quote no input."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from connectors.component import read_named_file
from policies.units import UserError

_SHORTEST = 6
"""Minimum length in characters; shorter secrets would match harmless words."""

_known: set[str] = set()
_lock = threading.Lock()


def remember_secret(value: str) -> None:
    """Register a secret for `without_secrets`, in its plain and its quoted form."""
    if len(value) >= _SHORTEST:
        with _lock:
            _known.update((value, repr(value)[1:-1], json.dumps(value)[1:-1]))


def without_secrets(text: str) -> str:
    """Replace every registered secret in a text.

    It is the last line of defence, for texts of libraries and servers; our own texts contain no secrets.
    """
    with _lock:
        found = [secret for secret in _known if secret in text]
    for each in sorted(found, key=len, reverse=True):
        text = text.replace(each, "***")
    return text


class RedactedBlock(BaseModel):
    """A frozen block whose validation errors never quote the input.

    Pydantic quotes the input of a failed field, and the whole block if a check of several fields fails. So a mistyped
    key or an unquoted number would print a password. `hide_input_in_errors` works only on the outermost model, which is
    another one, so this class removes the inputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    def problems(self) -> Iterator[tuple[str | tuple[str, ...], str]]:
        """Yield contradictions between fields: a field or path, and the remedy in one sentence.

        Files are checked before.
        """
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _quote_no_input(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            block = handler(value)
        except ValidationError as error:
            details = [_hidden(e["type"], e["loc"], e["msg"]) for e in error.errors(include_url=False)]
        else:
            problems = (*_file_problems(block), *block.problems())
            details = [
                _hidden("value_error", (place,) if isinstance(place, str) else place, message)
                for place, message in problems
            ]
            if not details:
                return block
        raise ValidationError.from_exception_data(cls.__name__, details, hide_input=True) from None


def _hidden(kind: str, place: tuple[int | str, ...], message: str) -> InitErrorDetails:
    # The message is an argument instead of the template, because it may contain braces.
    error = PydanticCustomError(kind, "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=place, input="(hidden)")


def _file_problems(block: RedactedBlock) -> Iterator[tuple[str, str]]:
    """Yield files that cannot be read, and secrets that are given twice: as `password` and as `password_file`."""
    for name in type(block).model_fields:
        file: Path | None = getattr(block, name) if name.endswith("_file") else None
        if file is None:
            continue
        try:
            with file.open("rb") as stream:
                stream.read(1)
        except OSError as error:
            yield name, f"{file} cannot be read: {error.strerror}"
        if getattr(block, plain := name.removesuffix("_file"), None) is not None:
            yield plain, f"give either {plain} or {name}, not both"


def read_text(file: Path, place: str) -> str:
    """Read a file that a setting names.

    Raises UserError if it cannot be read, is too large, or is not text; the message names `place` and the file.
    """
    try:
        return read_named_file(file, place).decode()
    except OSError as error:
        raise UserError(f"{place}: {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{place}: {file} is not a text file.") from None


def secret(value: SecretStr | None, file: Path | None, place: str) -> str | None:
    """Return the secret of the settings or of a file, without its last line end; None if both are missing.

    Raises UserError if the file cannot be read, or is empty.
    """
    if file is None:
        if value is None:
            return None
        remember_secret(value.get_secret_value())
        return value.get_secret_value()
    text = read_text(file, place).removesuffix("\n").removesuffix("\r")
    if not text:
        raise UserError(f"{place}: {file} is empty.")
    remember_secret(text)
    return text
