"""Command line options that several commands share, so that each has one name, one meaning and one help text."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.console.shell import SETTINGS_VARIABLE, complete_clusters, complete_policies

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
    from deploy.console.shell import note_settings_file
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
    if not _has_log:
        set_up_logging(answers=True)
    logging.getLogger().setLevel(level)
    from deploy.settings.application import with_running_up

    return with_running_up(load_settings(file))


def set_up_logging(*, verbose: bool = False, answers: bool = False, runs: bool = False) -> None:
    """Call `deploy.console.logs.set_up_logging`."""
    from deploy.console import logs

    global _has_log, _set_up_again
    set_up = partial(logs.set_up_logging, verbose=verbose, answers=answers, runs=runs)
    set_up()
    _has_log, _set_up_again = True, set_up if runs else None


def print_sentence(sentence: str) -> None:
    """Print a sentence: a terminal wraps it by words, elsewhere it is one line."""
    from deploy.console.terminal import sentence_console

    sentence_console().print(sentence, markup=False)


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
