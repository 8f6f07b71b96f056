"""The command `headgate check`: prints every error at once, then warnings."""

from collections.abc import Iterator
from pathlib import Path

from connectors.registration import SettingsWarning
from deploy.checking.doubts import doubts_about_environment, doubts_about_settings, doubts_about_text
from deploy.checking.effective import effective_settings
from deploy.checking.files import unusable_files
from deploy.checking.wording import Wording
from deploy.commands.console import SafeConsole
from deploy.settings.application import Settings
from deploy.settings.file import ReadFile, read_file, settings_of
from policies.errors import UserError
from policies.units import counted


def check(file: Path | None, *, effective: bool) -> None:
    """Check a file and print the result; with `effective`, print the settings in force, and warnings on standard error.

    Raises:
        UserError: the file has mistakes; the message lists all of them, one a line.
    """
    read = read_file(file)
    warnings = [_line(read.wording, each) for each in doubts_about_text(read.tree)]
    console = SafeConsole(stderr=effective, highlight=False, soft_wrap=True)
    try:
        settings = _good(read)
    except UserError:
        _warn(console, [*warnings, *_of_environment(None)])
        raise
    is_empty = not read.content and file is not None
    warnings += [_line(read.wording, each) for each in doubts_about_settings(settings, is_empty=is_empty)]
    warnings += _of_environment(settings)
    _warn(console, warnings)
    if effective:
        SafeConsole(highlight=False, soft_wrap=True).print(effective_settings(settings), end="", markup=False)
    else:
        watched = ", ".join(settings.clusters) or "no cluster"
        but = f", with {counted(len(warnings), 'warning')}" if warnings else ""
        console.print(f"{file or 'the environment'} is good{but}: {watched} watched.", markup=False)


def _good(read: ReadFile) -> Settings:
    settings = settings_of(read)
    mistakes = [f"{read.wording.where(place)}: {what}" for place, what in unusable_files(settings)]
    if mistakes:
        raise UserError("\n".join(mistakes))
    return settings


def _line(wording: Wording, doubt: SettingsWarning) -> str:
    return f"{wording.where(doubt.place)}: {doubt.sentence}"


def _of_environment(settings: Settings | None) -> Iterator[str]:
    for name, sentence in doubts_about_environment(settings):
        yield f"environment: {name}: {sentence}"


def _warn(console: SafeConsole, warnings: list[str]) -> None:
    for each in warnings:
        console.print(f"warning: {each}", style="yellow", markup=False)
