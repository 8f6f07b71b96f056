"""docs/reference/events.md: one section per event."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from policies.units import ClosedEnum
from policies.wire import MAX_RECORD_BYTES, Event
from tools.reference.catalogue import EventKind, catalogue, examples
from tools.reference.shapes import models_in, rows, table

_INTRODUCTION = f"""\
# Events

`make generate` writes this page from the models in the code; `make check` fails when it is stale.

Every record is one [CloudEvents 1.0](https://cloudevents.io) event in structured JSON mode, of at most \
{MAX_RECORD_BYTES // 2**20} MiB if the query reads it.
This page names topics without their prefix, by default `headgate.` (`topics.prefix`). Times are RFC 3339, UTC, with
milliseconds. Readers ignore unknown fields, so fields may be added; any other change makes a new type (`.v2`).
Delivery is at least once: a repeated decision has the same `decision_id` and `sequence`.
"""

_ENVELOPE: Mapping[str, str] = {
    "specversion": "`1.0`.",
    "id": "Unique; a decision's evidence is the ids of its observations.",
    "source": "The writer.",
    "type": "One of the types below.",
    "subject": "The subject of the data.",
    "time": "When it was read or decided. The age of an observation is measured from Kafka's append time; only a "
    "file for `headgate replay` uses this time.",
    "datacontenttype": "`application/json`.",
    "data": "As below.",
}


def events_page() -> str:
    """Return the whole page."""
    shown = examples()
    kinds = catalogue()
    # GitHub makes anchors of headings without their points.
    links = (f"[`{kind.event_type}`](#{kind.event_type.replace('.', '')})" for kind in kinds)
    overview = [(link, f"`{k.topic}`", k.key, k.written_by) for link, k in zip(links, kinds, strict=True)]
    assert _ENVELOPE.keys() == Event.model_fields.keys(), "the envelope has fields without an explanation"  # noqa: S101
    envelope = ((f"`{name}`", meaning) for name, meaning in _ENVELOPE.items())
    lines = [_INTRODUCTION, *table(("type", "topic", "record key", "written by"), overview)]
    lines += ["## The envelope\n", *table(("field", "meaning"), envelope), *_sections(kinds, shown), *_sets(kinds)]
    return "\n".join(lines)


def _sections(kinds: tuple[EventKind, ...], shown: Mapping[str, Any]) -> Iterator[str]:
    for kind in kinds:
        yield f"## {kind.event_type}\n\n{kind.summary}\n"
        yield f"Topic `{kind.topic}`, schema [{kind.schema_file}](schemas/{kind.schema_file}).\n"
        yield from _fields(kind)
        if example := shown.get(kind.event_type):
            yield f"```json\n{json.dumps(example, indent=2)}\n```\n"


def _fields(kind: EventKind) -> Iterator[str]:
    # The decision of an audit entry has its own section.
    shown = rows(kind.data_schema(), nested=not kind.is_audit)
    types = {False: "; may be left out", True: ""}
    body = ((f"`{row.name}`", row.type + types[row.required], row.meaning) for row in shown)
    yield from table(("field", "type", "meaning"), body)


def _sets(kinds: tuple[EventKind, ...]) -> Iterator[str]:
    """Return each closed enum once, with the fields that use it."""
    yield "## Closed sets\n"
    used: dict[type[ClosedEnum], list[str]] = {}
    for kind in kinds:
        for found in models_in(kind.data):
            if issubclass(found, StrEnum) and not kind.is_audit:
                used.setdefault(explained(found), []).append(kind.event_type)
    names = Counter(closed.__name__ for closed in used)
    for closed, types in used.items():
        heading = heading_of(closed, alone=names[closed.__name__] == 1)
        yield f"### {heading}\n\n{(closed.__doc__ or '').strip()} In {', '.join(dict.fromkeys(types))}.\n"
        yield from table(("value", "meaning"), ((f"`{member.value}`", member.meaning) for member in closed))


def explained(found: type[StrEnum]) -> type[ClosedEnum]:
    """Return the rows of a closed enum, with the meaning of each member.

    Raises:
        TypeError: it is no `ClosedEnum`.
    """
    if not issubclass(found, ClosedEnum):
        raise TypeError(f"{found.__module__}.{found.__name__}: what is on the wire must be a ClosedEnum")
    return found


def heading_of(closed: type[ClosedEnum], *, alone: bool) -> str:
    """Return the enum's name; if several have the same name, with its policy, from its module."""
    return closed.__name__ if alone else f"{closed.__name__} ({closed.__module__.split('.')[1]})"
