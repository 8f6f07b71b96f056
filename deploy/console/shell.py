"""The shell side of commands: times that people type, names to complete, and commands to paste."""

import os
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from policies.units import UserError

# Reads the times that people type: `14:45`, `10m ago`, an ISO date and time; shows instants as local times.

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_AGO = re.compile(r"(.+?)\s+ago")
_SHOWN = re.compile(r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z| UTC)(?!\w)")
"""An instant as sentences and events write it, always in UTC."""


def read_instant(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """Return the instant that a person means; None for None.

    It is a time of day in this machine's zone (the last one of that time), a duration before now, or ISO 8601 (UTC
    without a zone). Raises UserError if it is none of these.
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


# Completes names in a shell: the clusters of the settings, and the policies. A mistake completes nothing.

SETTINGS_VARIABLE = "HEADGATE_SETTINGS"
"""Names the settings file, in place of `--settings`."""


def complete_clusters(context: typer.Context, incomplete: str) -> list[str]:
    """Return the clusters of the settings that begin so."""
    file = context.params.get("settings") or os.environ.get(SETTINGS_VARIABLE)
    return [name for name in _read_clusters(file) if name.startswith(incomplete)]


def complete_policies(incomplete: str) -> list[str]:
    """Return the policies that begin so."""
    from policies.registry import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


def _read_clusters(file: Any) -> list[str]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from connectors.component import read_named_file

    try:
        content = YAML(typ="safe", pure=True).load(read_named_file(Path(file), "a settings file")) if file else {}
        return sorted(map(str, content.get("clusters", {})))
    except (OSError, UserError, ValueError, AttributeError, TypeError, YAMLError):
        return []


# Makes the commands in messages ready to be pasted: with the settings file of this call.

_COMMAND = re.compile(r"(`|^)(headgate (?!check|demo|docs|up|import-strimzi|-)[a-z][^`\n]*?)(`|$)", re.MULTILINE)
"""A command of Headgate that takes settings: in backquotes, or alone on its line."""
_WITH_SETTINGS = re.compile(r" (-s|--settings)\b")

_given: list[str] = []
"""The settings file of this process, as it was typed; empty without one."""


def note_settings_file(file: Path | None) -> None:
    """Remember the settings file that the user named; a variable of the environment needs no repetition."""
    _given[:] = [] if file is None or str(file) == os.environ.get(SETTINGS_VARIABLE) else [str(file)]


def complete_commands(text: str) -> str:
    """Return a text whose commands of Headgate name the settings file, too."""
    return _COMMAND.sub(_add_file, text) if _given else text


def _add_file(found: re.Match[str]) -> str:
    before, command, after = found.groups()
    if _WITH_SETTINGS.search(command) or bool(before) != bool(after):
        return found[0]
    return f"{before}{command} -s {shlex.quote(_given[0])}{after}"
