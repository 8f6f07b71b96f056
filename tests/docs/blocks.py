"""The fenced blocks of the docs: what they are, and below which heading they stand."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$|^#+ (?P<heading>[^\n]+)$", re.DOTALL | re.MULTILINE)
_TRYING = re.compile(r"try(ing)? it", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    heading: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_shell(self) -> bool:
        return self.language in ("console", "sh")

    @property
    def is_tried(self) -> bool:
        """Whether the block stands where a reader is asked to try it."""
        return _TRYING.search(self.heading) is not None

    def commands(self) -> list[str]:
        """The block's commands, one per line, without comments and with continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s+)#\s.*$", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def blocks() -> list[Block]:
    return [block for page in PAGES for block in _blocks_of(page)]


def tried(page: str) -> list[Block]:
    """The blocks of a page that a reader is asked to try, in their order."""
    found = [block for block in _blocks_of(ROOT / page) if block.is_tried]
    assert found, f"{page} has nothing to try"
    return found


def _blocks_of(page: Path) -> Iterator[Block]:
    text, heading = page.read_text(), ""
    for match in _FENCE.finditer(text):
        if match["heading"] is not None:
            heading = match["heading"]
            continue
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, heading, match[2], match[3])
