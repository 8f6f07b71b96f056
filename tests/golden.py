"""Golden records: courses of micro-batches with what was published for them, and the records that no course has.

References, benchmarks and tests take their examples of events from here. `tests/streaming/courses.py` writes them.
"""

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from policies.registry import POLICIES

DATA = Path(__file__).parent / "data" / "replay"
REFERENCE = "reference"
"""The course of each policy that shows its kinds of events in the references."""


class Batch(NamedTuple):
    """A micro-batch: when it runs, and its records; without records, timers may be due."""

    at_ms: int
    records: tuple[tuple[str, int, str], ...]
    """(topic without its prefix, milliseconds of its append, event)"""


class Course(NamedTuple):
    """The batches of one key."""

    name: str
    """The test from which it was recorded, and its number there."""
    policy: str
    cluster: str
    settings: dict[str, Any]
    batches: tuple[Batch, ...]

    def records(self) -> list[tuple[str, int, str]]:
        """Return the records of all batches, by the times of their appends."""
        return sorted((record for batch in self.batches for record in batch.records), key=lambda record: record[1])


OF_A_KEY = "#key"
"""In the names of courses of one key of the query, which has commands, alerts of a lost state and bad records."""


class Published(NamedTuple):
    """A record that the query publishes."""

    batch: int
    topic: str
    event: dict[str, Any]


def read_courses(policy: str) -> list[Course]:
    """The recorded courses of a policy."""
    return [
        Course(
            name, policy, cluster, settings, tuple(Batch(at_ms, tuple(map(tuple, found))) for at_ms, found in batches)
        )
        for name, cluster, settings, batches in _read_lines(DATA / "courses" / f"{policy}.jsonl.xz")
    ]


def read_reference(policy: str) -> Course:
    """The course that shows the events of a policy."""
    return next(course for course in read_courses(policy) if course.name == REFERENCE)


def read_published(policy: str) -> dict[str, list[Published]]:
    """What was published for the courses of a policy, by name."""
    lines = _read_lines(DATA / "courses" / f"{policy}.published.jsonl.xz")
    return {name: [Published(*each) for each in published] for name, published in lines}


def golden_events(policies: Iterable[str] = POLICIES) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each golden event after the name of its course, or of its file."""
    for policy in policies:
        for course in read_courses(policy):
            if OF_A_KEY in course.name:
                continue  # has bad records, too
            yield from ((course.name, json.loads(event)) for _, _, event in course.records())
        for name, published in read_published(policy).items():
            yield from ((name, each.event) for each in published if OF_A_KEY not in name)
    yield from (("records", json.loads(line)) for line in (DATA / "records.jsonl").read_text().splitlines())


def _read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()] if path.exists() else []
