"""The catalogue of all events: type, topic, model, JSON Schema (in words, too), an example from the golden records."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import fields
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from policies.decisions import Alert, Decision
from policies.observations import Reading
from policies.policy import TICKS, TIMERS, Tick, Timer
from policies.registry import AUDIT, COMMANDS, DEAD_LETTERS, POLICIES, commands, decision_types
from policies.units import Duration, Size, format_instant
from policies.wire import AUDIT_TYPE, DEAD_LETTER_TYPE, LETTERS_COUNTED_TYPE, Event
from streaming.dead_letters import DeadLetter, DeadLettersCounted
from tests.golden import REFERENCE, golden_events

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
        body = schema_of(Event[data], self.mode)
        body["properties"]["type"] = {"const": self.event_type}
        head = {"$schema": DIALECT, "$id": f"urn:headgate:{self.event_type}", "title": self.event_type}
        head["description"] = self.summary
        return head | {name: part for name, part in body.items() if name not in head}

    def data_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its data."""
        return schema_of(self.data, self.mode)


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


def schema_of(model: type[BaseModel], mode: JsonSchemaMode = "validation") -> dict[str, Any]:
    """Return the JSON Schema of any model, as these pages have it."""
    return model.model_json_schema(mode=mode, schema_generator=_Schemas)


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


# JSON Schemas in words: the type of a value, and the fields of an object as rows of Markdown tables.

Node = Mapping[str, Any]

_DURATION: Node = TypeAdapter(Duration).json_schema()
_SIZE: Node = TypeAdapter(Size).json_schema()
_FORMATS = {"date-time": "time", "path": "path", "password": "secret"}


class Row(NamedTuple):
    """One field."""

    name: str
    """Its name with the names of the objects around it: ``limiting.log_dir``, ``volumes[].log_dir``."""
    type: str
    required: bool
    meaning: str


def rows(schema: Node, defs: Node | None = None, prefix: str = "", *, nested: bool = True) -> Iterator[Row]:
    """Return the fields of an object, in order; with `nested`, the fields of inner objects follow their own."""
    defs = schema.get("$defs", {}) if defs is None else defs
    for name, field in schema.get("properties", {}).items():
        meaning = first_paragraph(field.get("description") or _target(field, defs).get("description"))
        yield Row(f"{prefix}{name}", words(field, defs), name in schema.get("required", ()), meaning)
        if nested:
            inner, suffix = _object_within(field, defs)
            yield from rows(inner, defs, f"{prefix}{name}{suffix}.")


def _target(node: Node, defs: Node) -> Node:
    """Return the definition that a node refers to; empty if none."""
    target: Node = defs.get(node.get("$ref", "").removeprefix("#/$defs/"), {})
    return target


def _object_within(node: Node, defs: Node) -> tuple[Node, str]:
    """Return the object that a field is, may be, or lists; empty if none."""
    if node.get("type") == "array":
        return _object_within(node["items"], defs)[0], "[]"
    targets = (_target(variant, defs) for variant in (node, *node.get("anyOf", ())))
    return next((target for target in targets if "properties" in target), {}), ""


def words(node: Node, defs: Node) -> str:
    """Describe the type of a value: ``whole number, at least 1``, ``duration``, ``text or null``."""
    if node.get("pattern") == _DURATION["pattern"]:
        return "duration"
    if target := _target(node, defs):
        return words(target, defs)
    if "anyOf" in node:
        # Pydantic merges a size that may be None into one list of variants.
        is_size = all(variant in node["anyOf"] for variant in _SIZE["anyOf"])
        others = [variant for variant in node["anyOf"] if not (is_size and variant in _SIZE["anyOf"])]
        found = ["size"] * is_size + [words(variant, defs) for variant in others]
        return " or ".join(dict.fromkeys(found))
    if values := node.get("enum", [node["const"]] if "const" in node else []):
        return ("one of " if len(values) > 1 else "") + code(values)
    match node.get("type"):
        case "string":
            return _FORMATS.get(node.get("format", ""), "text")
        case "integer" | "number" as kind:
            return ("whole number" if kind == "integer" else kind) + _bounds(node)
        case "array":
            most = f", at most {node['maxItems']}" if "maxItems" in node else ""
            return f"list of {words(node['items'], defs)}{most}"
        case "object":
            values = node.get("additionalProperties")
            return f"map of names to {words(values, defs)}" if isinstance(values, Mapping) and values else "object"
        case "boolean":
            return "true or false"
    return str(node.get("type", "any"))


def _bounds(node: Node) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and low <= -(2**31):  # no bound except the type's own, as below for the maximum
        low = None
    if low is not None and high is not None and high < 2**31 - 1:
        return f" from {low:g} to {high:g}"
    return f", at least {low:g}" if low is not None else ""


def first_paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line, with Markdown's marks for code."""
    return re.sub(r"\s+", " ", (text or "").strip().partition("\n\n")[0]).replace("``", "`")


def models_in(model: type[BaseModel]) -> Iterator[type[Any]]:
    """Yield every class in the fields of a model and of the models in it, in order."""
    for field in model.model_fields.values():
        for kind in () if field.exclude else classes_in(field.annotation):
            yield kind
            if issubclass(kind, BaseModel):
                yield from models_in(kind)
            elif issubclass(kind, Struct):
                yield from (each for part in fields(kind) for each in classes_in(part.type))


def classes_in(annotation: Any) -> Iterator[type[Any]]:
    """Yield every class in an annotation, at any depth: `Limit` in ``dict[str, Limit | None]``."""
    parts = getattr(annotation, "__args__", ())
    if isinstance(annotation, type) and not parts:
        yield annotation
    for part in parts:
        yield from classes_in(part)


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table and an empty one; `|` in a cell is escaped."""
    escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in (head, *body))
    first, *others = (f"| {' | '.join(cells)} |" for cells in escaped)
    yield from (first, "|" + "---|" * len(head), *others, "")


def code(names: Iterable[str]) -> str:
    """Format names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)
