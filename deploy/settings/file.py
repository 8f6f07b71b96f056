"""Loads a settings file; reports every mistake with its place and remedy."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml.nodes import Node

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.component import read_named_file
from connectors.http.access import HttpAccess
from connectors.kafka.connection import KafkaConnection
from connectors.pulsar.settings import PulsarAdmin
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.settings.application import Settings
from deploy.settings.schema import with_variables
from deploy.settings.wording import Wording
from deploy.settings.yaml_text import parse
from policies.units import UserError


@dataclass(frozen=True)
class ReadFile:
    """The content of a file and the environment, the file's YAML, and the wording of their mistakes."""

    content: dict[str, Any]
    tree: Node | None
    wording: Wording


def load_settings(file: Path | None) -> Settings:
    """Read the file (None for the defaults) and the environment.

    Raises UserError with one line a mistake: its line in the file and its path, or the name of its variable.
    """
    return settings_of(read_file(file))


def read_file(file: Path | None) -> ReadFile:
    """Read the file as YAML, and the environment; raises as `load_settings` does."""
    written, tree = ({}, None) if file is None else parse(_read_text(file), str(file))
    content, variables = with_variables(Settings, written, os.environ)
    return ReadFile(content, tree, Wording(Settings, tree, None if file is None else str(file), variables))


def settings_of(read: ReadFile) -> Settings:
    """Return the settings in a read file and the environment; raises as `load_settings` does."""
    try:
        return Settings.model_validate(read.content)
    except ValidationError as error:
        raise UserError("\n".join(read.wording.mistakes(error))) from None


def _read_text(file: Path) -> str:
    try:
        content = read_named_file(file, "a settings file")
        return TextIOWrapper(BytesIO(content), encoding="utf-8").read()
    except UnicodeDecodeError:
        raise UserError(f"{file}: cannot be read (not UTF-8 text): save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None


_FILES: Mapping[type, Callable[[Any], list[Callable[[], object]]]] = {
    KafkaConnection: lambda kafka: [kafka.for_kafka_python],
    ZooKeeperConnection: lambda each: [each.credential, *([each.tls.ssl_context] if each.tls is not None else [])],
    PulsarAdmin: lambda admin: [admin.bearer_token, lambda: admin.http_client().close()],
    AlertmanagerSettings: lambda settings: [lambda: settings.http_client().close()],
    HttpAccess: lambda access: [access.bearer_token, access.tls],
}
"""By the kind of a connection, what reads its files, and raises UserError."""


def unusable_files(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the connections that cannot be built from their files: the path of each, and the reason."""
    blocks: dict[tuple[str, ...], Any] = {
        ("kafka",): settings.kafka,
        ("alertmanager",): settings.alertmanager,
        ("http", "access"): settings.http.access,
    }
    for name, cluster in settings.clusters.items():
        blocks |= {("clusters", name, block): getattr(cluster, block) for block in ("kafka", "zookeeper", "pulsar")}
    for place, block in blocks.items():
        builds = next((builds for kind, builds in _FILES.items() if isinstance(block, kind)), lambda _: [])(block)
        if place == ("kafka",) and block is not None:  # Spark's Java client supports fewer kinds of keys than others
            builds.append(block.for_spark)
        for build in builds:
            try:
                build()
            except UserError as error:
                yield place, str(error)
