"""Describes JSON Schemas in words: the type of a value, and the fields of an object as rows of Markdown tables."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter

from policies.units import Duration, Size

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
        if field.exclude:
            continue
        for kind in classes_in(field.annotation):
            yield kind
            if issubclass(kind, BaseModel):
                yield from models_in(kind)


def classes_in(annotation: Any) -> Iterator[type[Any]]:
    """Yield every class in an annotation, at any depth: `Limit` in ``dict[str, Limit | None]``."""
    parts = getattr(annotation, "__args__", ())
    if isinstance(annotation, type) and not parts:
        yield annotation
    for part in parts:
        yield from classes_in(part)


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table and an empty one; `|` in a cell is escaped."""
    yield _line(head)
    yield "|" + "---|" * len(head)
    yield from map(_line, body)
    yield ""


def code(names: Iterable[str]) -> str:
    """Format names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
