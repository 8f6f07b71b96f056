"""Imports on first use, so that `headgate --help` imports no policy, no client library and no settings."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.settings.application import Settings

_logs: list[bool] = []
"""Not empty after logging has been set up."""


def load_settings(file: Path | None) -> "Settings":
    """Call `deploy.settings.file.load_settings`; set up logging first, because that function may log."""
    if not _logs:
        set_up_logging(answers=True)
    from deploy.commands.remedies import note_settings_file
    from deploy.settings import file as settings_file

    note_settings_file(file)
    return settings_file.load_settings(file)


def load_asked(file: Path | None, level: int = logging.INFO) -> "Settings":
    """Load the settings of a loop to ask; if they name no Kafka, and a `headgate up` runs, those of that one.

    Args:
        level: of the log, for an answer that contains every problem itself.
    """
    if not _logs:
        set_up_logging(answers=True)
    logging.getLogger().setLevel(level)
    from deploy.settings.embedded import with_running_up

    return with_running_up(load_settings(file))


def set_up_logging(*, verbose: bool = False, answers: bool = False, runs: bool = False) -> None:
    """Call `deploy.processes.logs.set_up_logging`."""
    from deploy.processes import logs

    logs.set_up_logging(verbose=verbose, answers=answers, runs=runs)
    _logs.append(True)


def print_sentence(sentence: str) -> None:
    """Print a sentence: a terminal wraps it by words, elsewhere it is one line."""
    from deploy.commands.console import sentence_console

    sentence_console().print(sentence, markup=False)
