"""The reference pages that an installation carries: `headgate docs`."""

from enum import StrEnum
from pathlib import Path

_INSTALLED = Path(__file__).parent / "published"
_CHECKOUT = Path(__file__).parents[1] / "docs" / "reference"


class Page(StrEnum):
    """A page, by its file."""

    SETTINGS = "settings"
    ALERTS = "alerts"
    METRICS = "metrics"
    EVENTS = "events"

    def read(self) -> str:
        """Return the page, as this version has it."""
        folder = _INSTALLED if _INSTALLED.exists() else _CHECKOUT
        file = "settings.yaml" if self is Page.SETTINGS else f"{self}.md"
        return (folder / file).read_text(encoding="utf-8")
