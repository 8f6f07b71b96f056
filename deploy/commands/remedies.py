"""Makes the commands in messages ready to be pasted: with the settings file of this call."""

import os
import re
import shlex
from pathlib import Path

from deploy.commands.completion import SETTINGS_VARIABLE

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
