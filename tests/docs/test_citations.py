"""What the repository cites, the repository has: a reader has nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("policies", "streaming", "connectors", "deploy", "tests", "docs", "docker", "bench", ".ci", ".github")
SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".java", ".sh", ".properties", ""}
OUTSIDE = re.compile(r"\bspecs/\w|\bDESIGN(\.md|'s|\b)|\bPLATFORM\.md")
"""Notes that were never part of the repository."""
CITED = re.compile(rf"(?<![\w./-])((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+\.[a-z0-9]+)\b")
MODULE = re.compile(r"`((?:streaming|connectors|deploy)(?:\.\w+)+)`")
"""In prose. (What begins with `policies.` is a setting.)"""
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[Path]:
    """Everything a person wrote here, but for this file and recorded data."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            kept = path.suffix in SUFFIXES and "__pycache__" not in path.parts and path != Path(__file__)
            if kept and path.is_file() and not path.is_relative_to(ROOT / "tests" / "data"):
                yield path
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix in SUFFIXES - {""})


def lines(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Where a pattern occurs, as ``file:line``."""
    for path in texts():
        text = path.read_text()
        for match in pattern.finditer(text):
            yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", match


def anchors(page: Path) -> set[str]:
    """As they are made from a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_nothing_is_cited_that_is_not_here() -> None:
    assert [f"{where}: {match[0]}" for where, match in lines(OUTSIDE)] == []


def test_every_file_that_is_cited_exists() -> None:
    # The wheel has the references under another name.
    cited = ((where, match[1].replace("deploy/published/", "docs/reference/")) for where, match in lines(CITED))
    assert [f"{where}: {name}" for where, name in cited if not (ROOT / name).exists()] == []


def test_every_module_that_is_cited_exists() -> None:
    missing = [f"{where}: {match[1]}" for where, match in lines(MODULE) if not is_there(match[1].split("."))]
    assert missing == []


def is_there(names: list[str]) -> bool:
    """Whether it is a folder, a module, or something defined in one."""
    here, above = ROOT.joinpath(*names), ROOT.joinpath(*names[:-1])
    if here.is_dir() or here.with_suffix(".py").is_file():
        return True
    module = above.with_suffix(".py") if above.with_suffix(".py").is_file() else above / "__init__.py"
    return module.is_file() and re.search(rf"\b{names[-1]}\b", module.read_text()) is not None


PAGES = [path for path in texts() if path.suffix == ".md"]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    for match in LINK.finditer(FENCED.sub("", page.read_text())):
        target = (page.parent / match[1]).resolve() if match[1] else page
        assert target.is_relative_to(ROOT), f"{match[0]} leads out of the repository"
        assert target.exists(), f"{match[0]}: no such file"
        if match[2] is not None:
            assert match[2] in anchors(target), f"{match[0]}: no such heading"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("see specs/throttle.md", OUTSIDE),
        ("DESIGN's figures", OUTSIDE),
        ("in docs/gone.md.", CITED),
        ("`connectors.gone`", MODULE),
        ("[a](b.md#c)", LINK),
    ],
)
def test_the_patterns_find_what_they_are_for(text: str, pattern: re.Pattern[str]) -> None:
    assert pattern.search(text)
