"""Reads the times that people type: `14:45`, `10m ago`, an ISO date and time; shows instants as local times."""

import re
from datetime import UTC, datetime, timedelta

from policies.errors import UserError

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_AGO = re.compile(r"(.+?)\s+ago")
_SHOWN = re.compile(r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z| UTC)(?!\w)")
"""An instant as sentences and events write it, always in UTC."""


def read_instant(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """Return the instant that a person means; None for None.

    Args:
        option: its name, for the error.
        text: a time of day in this machine's zone (the last one of that time), a duration before now, or ISO 8601
            (without a zone: UTC).

    Raises:
        UserError: it is none of these.
    """
    if text is None:
        return None
    now = now or datetime.now(UTC)
    if text.strip() == "now":
        return now
    if (clock := _CLOCK.fullmatch(text.strip())) is not None:
        hour, minute, second = (int(part or 0) for part in clock.groups())
        local = now.astimezone().replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (local if local <= now else local - timedelta(days=1)).astimezone(UTC)
    from policies.units import parse_duration  # `--help` need not load it

    try:
        if (ago := _AGO.fullmatch(text.strip())) is not None:
            return now - parse_duration(ago[1])
        instant = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise UserError(
            f"{option}: '{text}' is not a time: write 14:45 (local time), '10m ago', or 2026-11-21T08:00:00Z"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def show_local(text: str) -> str:
    """Return a text for a terminal: each instant in this machine's zone, with the zone's name."""
    return _SHOWN.sub(_show_instant, text)


def _show_instant(found: re.Match[str]) -> str:
    try:
        instant = datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00").astimezone()
    except (ValueError, OverflowError):
        return found[0]
    return f"{instant:%Y-%m-%d %H:%M:%S %Z}"


def local_clock(instant: datetime) -> str:
    """Return an instant's local time of day with its zone, such as `14:45:03 CET`."""
    return f"{instant.astimezone():%H:%M:%S %Z}"
