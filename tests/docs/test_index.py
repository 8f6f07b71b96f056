"""The index of the docs names every page, and every link of the docs leads to a file and a heading."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

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
