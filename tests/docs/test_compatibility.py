"""The table in `docs/compatibility.md` shows what the last `make compatibility` noted.

`python -m tests.docs.test_compatibility` writes it.
"""

import json
import re
from pathlib import Path

from tests.system.older import RESULTS

PAGE = Path(__file__).parents[2] / "docs/compatibility.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page() -> str:
    """The page as it should be."""
    return _TABLE.sub(lambda _: table(), PAGE.read_text())


def table() -> str:
    """A row for each version of each product, newest last."""
    seen = json.loads(RESULTS.read_text())
    lines = ["", "| | version | seen to work |", "|---|---|---|"]
    for product, versions in seen.items():
        for version in sorted(versions, key=_numbers):
            works = ", ".join(tried for tried, what in versions[version].items() if what == "works")
            others = "; ".join(f"{tried}: {what}" for tried, what in versions[version].items() if what != "works")
            lines.append(f"| {product} | {version} | {works}{f'. {others}' if others else ''} |")
    return "\n".join([*lines, "", ""])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_the_page_is_what_the_last_run_noted() -> None:
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    PAGE.write_text(page())
