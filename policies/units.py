"""Durations, sizes and instants as people write and read them.

Durations are written ``30s``, ``5m``, ``1h30m`` or ``250ms``; sizes ``5GB`` (decimal), ``5GiB`` (binary) or plain
bytes; instants are UTC with milliseconds. Inside the state, instants are whole milliseconds since the epoch.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ByteSize,
    Field,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PATTERN = rf"^{_WHOLE.pattern}$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SIZE = re.compile(r"(?:\d+(?:\.\d+)?|\.\d+)\s*(?:[^\W\d]\w*)?")
_LONGEST = timedelta(days=36_500)
"""No setting is longer, so that every resulting instant can still be written."""

MAX_INT64 = 2**63 - 1
"""The largest whole number the state can hold."""


def parse_duration(text: str) -> timedelta:
    """Read ``30s``, ``5m``, ``1h30m``, ``250ms`` or ``2d``; raises ValueError, which shows how one is written."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"'{text:.100}' is not a duration: write it as 30s, 5m, 1h30m or 250ms")
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
    if seconds > _LONGEST.total_seconds():
        raise ValueError(f"'{text:.100}' is too long: at most {_LONGEST.days}d")
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """Write a duration the way `parse_duration` reads it, to the millisecond: ``1h30m``, ``0s``."""
    milliseconds = round(duration / timedelta(milliseconds=1))
    parts: list[str] = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _read_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        if not timedelta(0) <= value <= _LONGEST:
            raise ValueError(f"{value} must lie between 0s and {_LONGEST.days}d")
        return value
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f"{value!r} is not a duration: write it with its unit, as 30s, 5m or 1h30m")


def _not_zero(value: timedelta) -> timedelta:
    if value < timedelta(milliseconds=1):
        raise ValueError("must be longer than 0s: at least 1ms")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(_read_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": ["30s", "5m", "1h30m"]}),
]
"""A length of time, zero allowed."""

PositiveDuration = Annotated[Duration, AfterValidator(_not_zero)]
"""A length of time, longer than zero."""


def _checked_size(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, bool | float):
        raise ValueError(f"{value!r} is not a size: write it as 5GB, 5GiB or plain bytes")  # noqa: TRY004 - pydantic's
    if not isinstance(value, str):
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{value} is not a size: it is never negative")
        return handler(value)
    try:
        if _SIZE.fullmatch(value.strip()):  # pydantic would take `5,5GB` for 5 bytes, and pass over the rest
            return handler(value)
    except ValidationError:
        pass
    raise ValueError(f"'{value:.100}' is not a size: write it as 5GB, 5GiB or plain bytes")


Size = Annotated[
    ByteSize,
    Field(ge=0, le=MAX_INT64),
    WrapValidator(_checked_size),
    PlainSerializer(int, return_type=int),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}], "examples": ["5GB", "5GiB", 42]}),
]
"""A number of bytes: ``5GB``, ``5GiB`` or plain bytes; never negative."""

Ratio = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A share of a whole, from 0 to 1."""


def format_instant(instant: datetime) -> str:
    """Write an instant as the wire has it: UTC, milliseconds, ``Z``."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_second(instant: datetime) -> str:
    """Write an instant as in messages: UTC, seconds, ``Z``."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _require_writable(instant: datetime) -> datetime:
    try:
        if instant.astimezone(UTC) >= EPOCH:
            return instant
    except OverflowError:
        pass
    raise ValueError("must lie between the years 1970 and 9999 in UTC")


AnyInstant = Annotated[AwareDatetime, PlainSerializer(format_instant, return_type=str)]
"""A point in time with its zone; serialised as UTC with milliseconds."""

Instant = Annotated[AnyInstant, AfterValidator(_require_writable)]
"""A point in time from 1970 to 9999 in UTC, which can be reckoned with."""


InstantMs = int
"""An instant in milliseconds since the epoch."""


def to_millis(instant: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    return (instant - EPOCH) // _MILLISECOND


def from_millis(milliseconds: int) -> datetime:
    """The instant this many milliseconds after the epoch, exactly."""
    return EPOCH + milliseconds * _MILLISECOND


def millis_of(duration: timedelta) -> int:
    """A duration in whole milliseconds."""
    return duration // _MILLISECOND


def human_bytes(count: float) -> str:
    """A size for a sentence, in decimal units and two or three digits: ``4.0 GB``, ``100 GB``, ``12 B``."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:  # a size that rounds to 1000 belongs to the next unit
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"


def human_rate(bytes_per_second: float) -> str:
    """A growth for a sentence: ``1.5 MB/s``, ``-12 kB/s``."""
    sign = "-" if bytes_per_second < 0 else ""
    return f"{sign}{human_bytes(abs(bytes_per_second))}/s"


def show_number(value: float) -> str:
    """A number without a unit: a whole one in full, any other with three digits."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 999.5 else f"{value:.3g}"


def human_seconds(seconds: float) -> str:
    """A length of time for a sentence, in its largest fitting unit: ``12 s``, ``41 min``, ``3.5 h``, ``9 days``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.0f} days"


def counted(count: int, noun: str) -> str:
    """A number of things for a sentence: ``1 bookie``, ``2 bookies``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def counted_with(count: int, noun: str, verb: str, verbs: str) -> str:
    """The same with its verb: ``1 bookie is``, ``2 bookies are``."""
    return f"{counted(count, noun)} {agreeing(count, verb, verbs)}"


def name_some(names: Sequence[str], most: int = 10, count: int | None = None) -> str:
    """Join the first names, and add how many more of `count` (by default, of these) there are: `a, b and 3 more`."""
    left = (len(names) if count is None else count) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def agreeing(count: int, one: str, many: str) -> str:
    """The word that agrees with the number: ``is`` for 1, ``are`` for any other."""
    return one if count == 1 else many


AS_TEXT = BeforeValidator(
    lambda value: str(value).lower() if isinstance(value, bool | int | float) else value,
    json_schema_input_type=str | float | bool,
)
"""Reads numbers and truth values as texts, as the properties of Java programs and of librdkafka are written."""


# Makes text from elsewhere safe to print: names may contain terminal control sequences.

# C0 except tab and line feed, DEL, C1 (0x9b begins an escape sequence), and the characters that turn the direction of
# text or end a line unseen.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """The text with its control characters spelled out, so that a terminal obeys none of them."""
    return _UNSAFE.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 0x100 else f"\\u{ord(m[0]):04x}", text)


def printable_line(text: str) -> str:
    """The same in one line: line feeds are spelled out, too, so that a name cannot imitate another line of output."""
    if text.isprintable():
        return text
    return printable(text).replace("\n", "\\n")


# Closed enumerations (verdicts, reasons, outcomes): each member is defined together with one line of documentation.


class ClosedEnum(StrEnum):
    """A closed set of words on the wire or in the settings; metric labels and reference pages are made of it.

    A member is written ``LOWER = "lower", "The factor goes down, at once."``; one without a meaning is a TypeError.
    """

    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Make a member from its word and its meaning."""
        if not meaning:
            raise TypeError(f"{cls.__module__}.{cls.__name__}: say what `{value}` means, beside it")
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


# The error type for mistakes that the user can fix.


class UserError(Exception):
    """A mistake that the user can fix.

    The message names the place and the remedy; the command prints it in one line, without a traceback.
    """


# The environment of a process that Headgate starts.

_SETTINGS = "HEADGATE_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Headgate's settings, among which secrets may be; JVMs and workers need none."""
    return {name: value for name, value in environment.items() if not name.upper().startswith(_SETTINGS)}
