"""Everything that anybody may write into an observed topic has a bound, and the schema shows it."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from policies.observations import Reading
from policies.registry import reading_types
from policies.wire import Event
from tests.cases import for_each

_BOUNDS = {"string": "maxLength", "array": "maxItems"}


def unbounded(model: type[BaseModel]) -> set[str]:
    """Paths of strings, lists and maps without a bound, in a model's JSON Schema."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return {path for name, each in {"": schema, **definitions}.items() for path in _unbounded(each, name)}


def _unbounded(schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    is_closed = {"enum", "const", "format"} & schema.keys()
    if kind in _BOUNDS and not is_closed and _BOUNDS[kind] not in schema:
        yield path
    if kind == "object" and schema.get("additionalProperties") and "maxProperties" not in schema:
        yield path
    for name, each in schema.get("properties", {}).items():
        yield from _unbounded(each, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        yield from _unbounded(schema.get(name), f"{path}[]")
    for each in (*schema.get("anyOf", ()), *schema.get("prefixItems", ())):
        yield from _unbounded(each, path)


@for_each("reading", reading_types())
def test_every_string_list_and_map_of_a_reading_is_bounded(reading: type[Reading]) -> None:
    assert unbounded(reading) == set()


def test_so_is_what_an_event_says_of_itself() -> None:
    assert unbounded(Event[int]) == set()


def test_a_detail_is_cut_not_refused() -> None:
    """Collectors put what an error says there, which may be anything."""
    reading = next(r for r in reading_types() if r.event_type == "headgate.kafka-cluster.v1")
    assert len(reading(cluster="a", outcome="error", detail="x" * 10_000).detail or "") == 2000
