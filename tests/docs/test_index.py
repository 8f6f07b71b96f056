"""The index of the docs names every page, and every link of the docs leads to a file."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def targets(page: Path) -> set[Path]:
    """The files that a page links to, without addresses."""
    links = (link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")))
    return {(page.parent / link).resolve() for link in links if link and "://" not in link}


def test_the_index_names_every_page_for_people() -> None:
    pages = {*DOCS.glob("*.md"), *(DOCS / "design").glob("*.md")} - {DOCS / "README.md"}
    assert pages - targets(DOCS / "README.md") == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [str(target) for target in targets(page) if not target.exists()] == []


def test_the_release_notes_fit_one_screen() -> None:
    first = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert first.startswith("0.1.0\n")
    assert len(first.splitlines()) <= 40
