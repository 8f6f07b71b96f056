"""The index names every page, every link leads somewhere, and the threat model has each topic and endpoint."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from connectors.http.server import _INDEX
from policies.registry import CORE_TOPICS
from tests.docs.blocks import ROOT
from tools.reference.pages import document

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def targets(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links to, and the heading of each; '' for the whole file."""
    return [((page.parent / link).resolve() if link else page, part) for link, part in LINK.findall(prose(page))]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_index_names_every_page_for_people() -> None:
    pages = {*DOCS.glob("*.md"), *(DOCS / "design").glob("*.md")} - {DOCS / "README.md"}
    assert pages - {file for file, _ in targets(DOCS / "README.md")} == set()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    for file, heading in targets(page):
        assert file.exists(), f"{file}: no such file"
        assert not heading or heading in anchors(file), f"{file.name} has no heading #{heading}"


def test_the_release_notes_fit_one_screen() -> None:
    first = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert first.startswith("0.1.0\n")
    assert len(first.splitlines()) <= 40


THREATS = (ROOT / "docs/design/threats.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\|(.+)\|$", THREATS, re.MULTILINE)
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
