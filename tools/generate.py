"""Writes docs/reference: schemas, AsyncAPI, and pages on settings, events, metrics and alerts.

``python -m tools.generate`` writes them, ``--check`` only compares: status 1 if a file is stale, missing or left over.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.reference.alerts_page import alertmanager_page, alerts_page
from tools.reference.asyncapi import asyncapi
from tools.reference.catalogue import catalogue
from tools.reference.events_page import events_page
from tools.reference.metrics_page import metrics_page
from tools.reference.settings_page import settings_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

_SCHEMAS = "schemas"


def generated() -> dict[str, str]:
    """Return the content of every file by its path under docs/reference; reproducible on any machine."""
    schemas = {
        f"{_SCHEMAS}/{kind.schema_file}": json.dumps(kind.schema(), indent=2, ensure_ascii=False) + "\n"
        for kind in catalogue()
    }
    return {
        "alertmanager.yaml": alertmanager_page(),
        "alerts.md": alerts_page(),
        "asyncapi.yaml": asyncapi(),
        "events.md": events_page(),
        "metrics.md": metrics_page(),
        "settings.yaml": settings_page(),
        **schemas,
    }


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files, and remove schemas of events that no longer exist."""
    (folder / _SCHEMAS).mkdir(parents=True, exist_ok=True)
    for file in _left_over(files, folder):
        file.unlink()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def stale(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Return files that are missing, that differ, or that describe events that no longer exist."""
    differing = (folder / name for name, content in files.items() if _content(folder / name) != content)
    return sorted([*differing, *_left_over(files, folder)])


def _left_over(files: Mapping[str, str], folder: Path) -> Iterator[Path]:
    known = {folder / name for name in files}
    return (file for file in (folder / _SCHEMAS).glob("*.json") if file not in known)


def _content(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.is_file() else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file is stale")
    parser.add_argument("--folder", type=Path, default=REFERENCE, help="default: docs/reference")
    given = parser.parse_args(arguments)
    files = generated()
    if not given.check:
        write(files, given.folder)
        return 0
    found = stale(files, given.folder)
    for file in found:
        sys.stderr.write(f"{file} is stale: run `make generate`\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
