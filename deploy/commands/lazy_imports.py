"""Imports on first use: so `headgate --help` imports no policy, no client library and no settings."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.settings.application import Settings

_logs: list[bool] = []
"""Not empty once logging is set up."""


def load_settings(file: Path | None) -> "Settings":
    """As `deploy.settings.file.load_settings`, with what it raises; it may log, so logging is set up."""
    if not _logs:
        set_up_logging(answers=True)
    from deploy.settings import file as settings_file

    return settings_file.load_settings(file)


def set_up_logging(*, verbose: bool = False, answers: bool = False) -> None:
    """As `deploy.processes.logs.set_up_logging`."""
    from deploy.processes import logs

    logs.set_up_logging(verbose=verbose, answers=answers)
    _logs.append(True)


def print_sentence(sentence: str) -> None:
    """Print a sentence: on a person's terminal wrapped by words, elsewhere as one line."""
    from deploy.commands.console import sentence_console

    sentence_console().print(sentence, markup=False)
