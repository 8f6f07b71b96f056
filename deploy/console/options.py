"""What several commands share: options, the times that people type, names to complete, and examples in the help."""

import logging
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policies.units import UserError

if TYPE_CHECKING:
    from deploy.settings.application import Settings


# Imports on first use, so that `headgate --help` imports no policy, no client library and no settings.

_has_log = False
_set_up_again: Callable[..., None] | None = None
"""Sets up the log once more, with the level and form that the settings name; None: the log stays as it is."""


def load_settings(file: Path | None) -> "Settings":
    """Call `deploy.settings.file.load_settings`; set up logging first, because that function may log."""
    global _set_up_again
    if not _has_log:
        set_up_logging(answers=True)
    from deploy.console.terminal import note_settings_file
    from deploy.settings import file as settings_file

    note_settings_file(file)
    settings = settings_file.load_settings(file)
    if _set_up_again is not None:
        _set_up_again(level=settings.log.level, form=settings.log.format)
        _set_up_again = None  # the log settings of a reload apply in the process that replaces this one
    return settings


def load_asked(file: Path | None, level: int = logging.INFO) -> "Settings":
    """Load the settings of a loop to ask; if they name no Kafka, and a `headgate up` runs, those of that one.

    `level` is that of the log, for an answer that contains every problem itself.
    """
    settings = load_settings(file)
    logging.getLogger().setLevel(level)
    from deploy.settings.application import with_running_up

    return with_running_up(settings)


def set_up_logging(*, verbose: bool = False, answers: bool = False, runs: bool = False) -> None:
    """Call `deploy.console.terminal.set_up_logging`."""
    from deploy.console import terminal

    global _has_log, _set_up_again
    set_up = partial(terminal.set_up_logging, verbose=verbose, answers=answers, runs=runs)
    set_up()
    _has_log, _set_up_again = True, set_up if runs else None


def print_sentence(sentence: str) -> None:
    """Print a sentence: a terminal wraps it by words, elsewhere it is one line."""
    from deploy.console.terminal import sentence_console

    sentence_console().print(sentence, markup=False)


# Reads the times that people type: `14:45`, `10m ago`, an ISO date and time.

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_AGO = re.compile(r"(.+?)\s+ago")


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


# The options. A test checks that those of the examples exist.


def show_examples(*lines: str) -> str:
    """Return examples of a command as the end of its help, which is not wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        "-s",
        envvar=SETTINGS_VARIABLE,
        help="Settings file (YAML). Environment variables override its settings.",
    ),
]
ClusterFilter = Annotated[
    str | None, typer.Option("--cluster", "-c", help="Only this cluster, or glob.", autocompletion=complete_clusters)
]
PolicyFilter = Annotated[
    str | None, typer.Option("--policy", "-p", help="Only this policy.", autocompletion=complete_policies)
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again after each change, until Ctrl-C.")]
Reason = Annotated[str, typer.Option(help="Why, in your own words. It is recorded with the command.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds to wait for the loop's answer.")]
