"""Writes the generated files: docs/reference, docker/ and the dashboards.

``python -m tools.generate`` writes them, ``--check`` only compares: status 1 if a file is stale, missing or left over.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools import dashboards
from tools.reference import kubernetes
from tools.reference.asyncapi import asyncapi
from tools.reference.catalogue import catalogue
from tools.reference.pages import alertmanager_page, alerts_page, events_page, metrics_page
from tools.reference.settings_page import settings_page

ROOT = Path(__file__).parents[1]
REFERENCE, DOCKER, GRAFANA = "docs/reference", "docker", "deploy/monitoring/grafana"
SCHEMAS = f"{REFERENCE}/schemas"


def generated() -> dict[str, str]:
    """Return the content of every file by its path in the repository; reproducible on any machine."""
    pages = {
        "alertmanager.yaml": alertmanager_page(),
        "alerts.md": alerts_page(),
        "asyncapi.yaml": asyncapi(),
        "events.md": events_page(),
        "metrics.md": metrics_page(),
        "settings.yaml": settings_page(),
    }
    schemas = {f"{k.event_type}.json": json.dumps(k.schema(), indent=2, ensure_ascii=False) + "\n" for k in catalogue()}
    rooms = {REFERENCE: pages, SCHEMAS: schemas, DOCKER: kubernetes.files(), GRAFANA: dashboards.files()}
    return {f"{room}/{name}": content for room, files in rooms.items() for name, content in files.items()}


def write(files: Mapping[str, str], root: Path) -> None:
    """Write the files, and remove schemas and dashboards that are generated no longer."""
    for file in _left_over(files, root):
        file.unlink()
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")


def stale(files: Mapping[str, str], root: Path) -> list[Path]:
    """Return files that are missing, that differ, or that are generated no longer."""
    paths = {root / name: content for name, content in files.items()}
    differing = (path for path, content in paths.items() if not path.is_file() or path.read_text("utf-8") != content)
    return sorted([*differing, *_left_over(files, root)])


def _left_over(files: Mapping[str, str], root: Path) -> Iterator[Path]:
    known = {root / name for name in files}
    return (file for room in (SCHEMAS, GRAFANA) for file in (root / room).glob("*.json") if file not in known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that has docs/, docker/ and deploy/")
    given = parser.parse_args(arguments)
    files = generated()
    if not given.check:
        write(files, given.root)
        return 0
    found = stale(files, given.root)
    for file in found:
        sys.stderr.write(f"{file} is stale: run `make generate`\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
