"""The command `headgate check`: prints every error at once, then warnings."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.http.access import HttpAccess
from connectors.kafka.connection import KafkaConnection
from connectors.pulsar.connection import PulsarAdmin
from connectors.registration import SettingsWarning
from connectors.zookeeper.connection import ZooKeeperConnection
from deploy.checking.effective import effective_settings
from deploy.checking.warnings import environment_warnings, settings_warnings, text_warnings
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
    warnings = [_line(read.wording, each) for each in text_warnings(read.tree)]
    console = SafeConsole(stderr=effective, highlight=False, soft_wrap=True)
    try:
        settings = _load_checked(read)
    except UserError:
        _warn(console, [*warnings, *_environment_lines(None)])
        raise
    is_empty = not read.content and file is not None
    found = list(settings_warnings(settings, is_empty=is_empty))
    warnings += [_line(read.wording, each) for each in found if not each.is_mistake]
    warnings += _environment_lines(settings)
    _warn(console, warnings)
    if mistakes := [_line(read.wording, each) for each in found if each.is_mistake]:
        raise UserError("\n".join(mistakes))
    if effective:
        SafeConsole(highlight=False, soft_wrap=True).print(effective_settings(settings), end="", markup=False)
    else:
        watched = ", ".join(settings.clusters) or "no cluster"
        but = f", with {counted(len(warnings), 'warning')}" if warnings else ""
        console.print(f"{file or 'the environment'} is good{but}: {watched} watched.", markup=False)


def _load_checked(read: ReadFile) -> Settings:
    settings = settings_of(read)
    mistakes = [f"{read.wording.locate(place)}: {what}" for place, what in unusable_files(settings)]
    if mistakes:
        raise UserError("\n".join(mistakes))
    return settings


def _line(wording: Wording, warning: SettingsWarning) -> str:
    return f"{wording.locate(warning.place)}: {warning.sentence}"


def _environment_lines(settings: Settings | None) -> Iterator[str]:
    for name, sentence in environment_warnings(settings):
        yield f"environment: {name}: {sentence}"


def _warn(console: SafeConsole, warnings: list[str]) -> None:
    for each in warnings:
        console.print(f"warning: {each}", style="yellow", markup=False)


def unusable_files(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the connections that cannot be built from their files: the path of each, and the reason."""
    yield from _try_to_build(("kafka",), settings.kafka)
    yield from _try_to_build(("alertmanager",), settings.alertmanager)
    yield from _try_to_build(("http", "access"), settings.http.access)
    if settings.kafka is not None:  # Spark's Java client supports fewer kinds of keys than the other clients
        yield from _read_refusal(("kafka",), settings.kafka.for_spark)
    for name, cluster in settings.clusters.items():
        for block in ("kafka", "zookeeper", "pulsar"):
            yield from _try_to_build(("clusters", name, block), getattr(cluster, block))


def _try_to_build(place: tuple[str, ...], connection: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    match connection:
        case KafkaConnection():
            yield from _read_refusal(place, connection.for_kafka_python)
        case ZooKeeperConnection():
            yield from _read_refusal(place, connection.credential)
            if connection.tls is not None:
                yield from _read_refusal(place, connection.tls.ssl_context)
        case PulsarAdmin():
            yield from _read_refusal(place, connection.bearer_token)
            yield from _read_refusal(place, lambda: connection.http_client().close())
        case AlertmanagerSettings():
            yield from _read_refusal(place, lambda: connection.http_client().close())
        case HttpAccess():
            yield from _read_refusal(place, connection.bearer_token)
            yield from _read_refusal(place, connection.tls)


def _read_refusal(place: tuple[str, ...], build: Callable[[], object]) -> Iterator[tuple[tuple[str, ...], str]]:
    try:
        build()
    except UserError as error:
        yield place, str(error)
