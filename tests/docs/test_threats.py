"""The threat model has a row for each topic and endpoint of the generated references, and for each link of the page."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from connectors.exporter.http import _INDEX
from policies.registry import CORE_TOPICS
from tools.reference.pages import document

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/design/threats.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\|(.+)\|$", PAGE, re.MULTILINE)
NAMED = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row.partition("|")[0])}
"""What stands in the first cells."""
SITE = (ROOT / "connectors/exporter/page/site.py").read_text(encoding="utf-8")


def test_every_topic_has_a_row() -> None:
    documented = {channel["address"].removeprefix("{prefix}.") for channel in document()["channels"].values()}
    assert {*CORE_TOPICS, *documented} - NAMED == set()


def test_every_endpoint_has_a_row() -> None:
    templates = (ROOT / "connectors/exporter/page/templates").glob("*.html")
    pages = "".join([_INDEX, *(file.read_text(encoding="utf-8") for file in templates)])
    linked = re.findall(r'(?:href|src)="(/[^"{]*)', pages)
    endpoints = {*linked, *re.findall(r'"(/api/v1/\S+)"', SITE)}
    assert {"/", "/metrics", "/clusters/", "/-/ready"} <= endpoints
    assert [each for each in sorted(endpoints) if not any(fnmatchcase(each, pattern) for pattern in NAMED)] == []


def test_no_cell_is_empty() -> None:
    assert [row for row in ROWS if any(not cell.strip() for cell in row.split("|"))] == []
