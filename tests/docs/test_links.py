"""Each link of a page to a file or a heading of the repository leads there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docker").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """As they are made from a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    for match in LINK.finditer(FENCED.sub("", page.read_text())):
        target = (page.parent / match[1]).resolve() if match[1] else page
        assert target.exists(), f"{match[0]}: no such file"
        if match[2] is not None:
            assert match[2] in anchors(target), f"{match[0]}: no such heading"
