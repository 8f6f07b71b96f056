"""The catalogue of all events: type, topic, data model, JSON Schema and an example from the golden records."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from policies.decisions import Alert, Decision
from policies.observations import Reading
from policies.policy import TICKS, TIMERS, Tick, Timer
from policies.registry import AUDIT, COMMANDS, DEAD_LETTERS, POLICIES, commands, decision_types
from policies.units import format_instant
from policies.wire import AUDIT_TYPE, DEAD_LETTER_TYPE, LETTERS_COUNTED_TYPE, Event
from streaming.dead_letters import DeadLetter, DeadLettersCounted
from tests.golden import REFERENCE, golden_events
from tools.reference.shapes import first_paragraph

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class AuditEntry(BaseModel):
    """A decision as it was published, or a verdict that changed nothing, and the numbers behind it."""

    model_config = ConfigDict(frozen=True)

    decision_type: str = Field(description="The `type` this decision has on its own topic.")
    decision: Decision = Field(description="The decision, with the fields of its kind.")
    numbers: Mapping[str, Any] = Field(description="The numbers behind it; each policy has its own.")
    observations: tuple[Mapping[str, Any], ...] = Field(
        default=(),
        description="The evidence from the same step: `id`, `type`, `subject`, `time` and `data` of each, "
        "as on its observed topic. The rest of its evidence is on that topic for as long as that keeps it.",
    )


@dataclass(frozen=True, slots=True)
class EventKind:
    """One type of event."""

    event_type: str
    topic: str
    """The topic's name without its prefix."""
    key: str
    """A description of the Kafka record's key."""
    written_by: str
    data: type[BaseModel]
    """The model of its data, for the pages."""

    @property
    def mode(self) -> JsonSchemaMode:
        """Whether the schema is that of accepted readings (of any collector), or that of written events."""
        return "validation" if self.is_observed else "serialization"

    @property
    def is_observed(self) -> bool:
        """Whether the query reads it."""
        return issubclass(self.data, Reading)

    @property
    def summary(self) -> str:
        """One paragraph that describes it."""
        return first_paragraph(self.data.__doc__)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the whole event."""
        data: Any = _audit_entries() if self.data is AuditEntry else self.data
        body = Event[data].model_json_schema(mode=self.mode, schema_generator=_Schemas)
        body["properties"]["type"] = {"const": self.event_type}
        head = {"$schema": DIALECT, "$id": f"urn:headgate:{self.event_type}", "title": self.event_type}
        head["description"] = self.summary
        return head | {name: part for name, part in body.items() if name not in head}

    def data_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its data."""
        return self.data.model_json_schema(mode=self.mode, schema_generator=_Schemas)


def catalogue() -> tuple[EventKind, ...]:
    """Return all kinds of events: observed, decided, audit, reports, dead letters, timers, ticks."""
    kinds = POLICIES.values()
    observed = (
        (reading, topic, kind.written_by.get(reading, "the collectors"))
        for kind in kinds
        for topic, readings in kind.observed.items()
        for reading in readings
    )
    commanded = ((reading, COMMANDS, sender) for reading, sender in commands().items())
    reports = (report for kind in kinds for report in kind.reports)
    keys: dict[type[Decision], str] = {Alert: "`<policy>/<alert>/<subject>`"}
    origin = "the topic the record"
    return (
        *(EventKind(it.event_type, topic, "the cluster's name", by, it) for it, topic, by in (*observed, *commanded)),
        *(EventKind(it.event_type, it.topic, keys.get(it, "the subject"), "the query", it) for it in decision_types()),
        EventKind(AUDIT_TYPE, AUDIT, "the cluster's name", "the query", AuditEntry),
        *(EventKind(it.event.event_type, it.topic, it.key, it.written_by, it.event) for it in reports),
        EventKind(DEAD_LETTER_TYPE, DEAD_LETTERS, f"{origin} came from", "the query", DeadLetter),
        EventKind(LETTERS_COUNTED_TYPE, DEAD_LETTERS, f"{origin}s came from", "the query", DeadLettersCounted),
        EventKind(Timer.event_type, TIMERS, "a digest of policy and cluster", "the query", Timer),
        EventKind(Tick.event_type, TICKS, "the reason", "the query's process, for the query to read", Tick),
    )


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Return by type the golden event that has the most fields filled; the reference courses win, then the first.

    A recorded reading may have fields that readings have no longer; an example has none of them.
    """
    ranks: dict[str, tuple[bool, int]] = {}
    found: dict[str, dict[str, Any]] = {}
    known = {kind.event_type: kind.data_schema()["properties"].keys() for kind in catalogue()}
    for course, event in golden_events():
        filled = sum(value not in (None, [], {}, "") for value in event["data"].values())
        kind, rank = event["type"], (course.startswith(REFERENCE), filled)
        if rank > ranks.get(kind, (False, -1)):
            data = {name: value for name, value in event["data"].items() if name in known[kind]}
            ranks[kind], found[kind] = rank, event | {"data": data}
    return found


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of any model, as these pages have it."""
    return model.model_json_schema(schema_generator=_Schemas)


class _Schemas(GenerateJsonSchema):
    """Generates Pydantic's schemas without invented titles, and with the types that serialisers hide."""

    def ser_schema(self, schema: Any) -> dict[str, Any] | None:
        """Describe an instant as a date-time, because Pydantic knows only that its serialiser returns text."""
        if schema.get("function") is format_instant:
            return {"type": "string", "format": "date-time"}
        return super().ser_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Give fields no title, because Pydantic's title repeats the name."""
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Require every field in written events, because Headgate writes all of them, except where it says so."""
        if self.mode == "serialization":
            return "serialization_exclude_if" not in field
        return super().field_is_required(field, total)

    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out the discriminator, whose meaning in AsyncAPI differs; the constants have the same information."""
        union = super().tagged_union_schema(schema)
        union.pop("discriminator", None)
        return union

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out defaults of fields that are always written, and keep one form for null instants."""
        inner: CoreSchema = schema["schema"]
        if self.mode == "serialization" or schema.get("default", ...) is None:
            return self.generate_inner(inner)
        return super().default_schema(schema)


def _audit_entries() -> Any:
    """Return the union of the entries of all decisions."""
    entries = [
        create_model(
            f"{decision.__name__}Entry",
            __base__=AuditEntry,
            __doc__=f"Of `{decision.event_type}`.",
            decision_type=(Literal[decision.event_type], ...),  # type: ignore[arg-type]
            decision=(decision, ...),
        )
        for decision in decision_types()
    ]
    return Annotated[reduce(or_, entries), Field(discriminator="decision_type")]
