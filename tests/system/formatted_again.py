"""Folders of new brokers as Kafka's own tool formats them: by it once a process, and then as it left them.

The tool is a JVM of its own for each broker, which takes as much of the processor as a third of the broker's start.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.embedded.kafka import EmbeddedKafka

BY_KAFKAS_TOOL: Callable[[EmbeddedKafka, float], None] = EmbeddedKafka._format_new_brokers
"""What `use` replaces."""


class Formatted(NamedTuple):
    """What the tool left."""

    cluster_id: str
    """Stands in some of the files: the only thing by which two clusters differ."""
    files: tuple[tuple[int, Path, bytes], ...]
    """By the number of the folder: its place there, and what it holds."""


_left: dict[tuple[int, int, tuple[Path, ...]], Formatted] = {}
"""By the broker, its number of folders, and the tool's jars."""


def use() -> None:
    """Have brokers of this process formatted so."""
    EmbeddedKafka._format_new_brokers = _format_new_brokers  # type: ignore[assignment,method-assign]


def _format_new_brokers(kafka: EmbeddedKafka, deadline: float) -> None:
    new = {broker: _folders(kafka, broker) for broker in kafka._new_brokers()}
    keys = {broker: (broker, len(folders), kafka._jars) for broker, folders in new.items()}
    if all(key in _left for key in keys.values()):
        for broker, folders in new.items():
            _write(_left[keys[broker]], folders, kafka._identity.cluster_id)
        return
    BY_KAFKAS_TOOL(kafka, deadline)
    for broker, folders in new.items():
        _left[keys[broker]] = Formatted(kafka._identity.cluster_id, tuple(_files(folders)))


def _folders(kafka: EmbeddedKafka, broker: int) -> list[Path]:
    named = str(kafka._properties(broker)["log.dirs"]).split(",")
    return [kafka._metadata_dir(broker), *map(Path, named)]


def _files(folders: Sequence[Path]) -> list[tuple[int, Path, bytes]]:
    return [
        (number, path.relative_to(folder), path.read_bytes())
        for number, folder in enumerate(folders)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def _write(left: Formatted, folders: Sequence[Path], cluster_id: str) -> None:
    for number, place, content in left.files:
        file = folders[number] / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.replace(left.cluster_id.encode(), cluster_id.encode()))
