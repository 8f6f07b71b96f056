"""Base of settings blocks that may hold secrets: validation errors never quote the input."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from policies.errors import UserError

_SHORTEST = 6
"""Characters: what is shorter would be found in innocent words."""

_known: set[str] = set()
_lock = threading.Lock()


def remember_secret(value: str) -> None:
    """Have `without_secrets` find a secret, as it is and as it stands in quoted text."""
    if len(value) >= _SHORTEST:
        with _lock:
            _known.update((value, repr(value)[1:-1], json.dumps(value)[1:-1]))


def without_secrets(text: str) -> str:
    """The text without any secret that this process has been given.

    The last line of defence, for what libraries and servers say; nothing of ours puts a secret into a text.
    """
    with _lock:
        found = [secret for secret in _known if secret in text]
    for each in sorted(found, key=len, reverse=True):
        text = text.replace(each, "***")
    return text


class RedactedBlock(BaseModel):
    """A frozen block whose validation errors never quote what was given.

    Pydantic quotes the input of a failed field, and of a whole block when a check over several fields fails: a mistyped
    key or an unquoted number would print a password. `hide_input_in_errors` counts only on the outermost model, which
    is not ours, so the inputs are taken out here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong across fields: the field to blame, and the remedy in one sentence; nothing by default."""
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _quote_no_input(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            block = handler(value)
        except ValidationError as error:
            details = [_hidden(e["type"], e["loc"], e["msg"]) for e in error.errors(include_url=False)]
        else:
            details = [_hidden("value_error", (field,), message) for field, message in block.problems()]
            if not details:
                return block
        raise ValidationError.from_exception_data(cls.__name__, details, hide_input=True) from None


def _hidden(kind: str, place: tuple[int | str, ...], message: str) -> InitErrorDetails:
    # The message is an argument, not the template: it may hold braces.
    error = PydanticCustomError(kind, "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=place, input="(hidden)")


def unreadable(file: Path) -> str | None:
    """Why a file cannot be read, in one clause that names it; None when it can."""
    try:
        with file.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    return None


def unreadable_files(files: dict[str, Path | None]) -> Iterator[tuple[str, str]]:
    """Of the files that fields name, those that cannot be read: the field, and why."""
    for field, file in files.items():
        if file is not None and (why := unreadable(file)):
            yield field, why


def read_text(file: Path, place: str) -> str:
    """Read a file that a setting names.

    Raises:
        UserError: it cannot be read (any more), or is not text; the message names `place` and the file.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{place}: {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{place}: {file} is not a text file.") from None


def secret(value: SecretStr | None, file: Path | None, place: str) -> str | None:
    """The secret given in the settings or in a file (without its last line end); None when there is neither.

    Raises:
        UserError: the file cannot be read, or is empty.
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
