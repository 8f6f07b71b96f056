"""The threat model has a row for each topic and endpoint."""

import re
from pathlib import Path

from policies.registry import CORE_TOPICS, decided_topics, observed_topics

PAGE = (Path(__file__).parents[2] / "docs/design/threats.md").read_text(encoding="utf-8")


def test_every_topic_has_a_row() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {*CORE_TOPICS, *decided_topics(), *observed_topics()} - named == set()


def test_every_open_endpoint_has_a_row() -> None:
    for path in ("/-/healthy", "/-/ready", "/metrics", "/api/v1/*"):
        assert re.search(rf"^\|[^|]*`{re.escape(path)}`", PAGE, re.MULTILINE), path
