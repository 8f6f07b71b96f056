"""Lists the settings that are valid at a place of the file, from the Pydantic models."""

import dataclasses
import json
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from policies.settings import PolicySettings

Place = tuple[int | str, ...]


def model_at(root: type[BaseModel], place: Place) -> type | None:
    """Return the model (or dataclass) of the block at a place; None if no block belongs there."""
    found = _types_at(root, place)
    return next((each for each in found if _fields(each)), None)


def names_at(root: type[BaseModel], place: Place) -> tuple[str, ...]:
    """Return the names of the settings of the block at a place; empty if no block belongs there."""
    model = model_at(root, place)
    return () if model is None else tuple(_fields(model))


def places(kind: Any, clusters: Sequence[str], place: Place = ()) -> Iterator[Place]:
    """Yield the path of every setting of a model; below maps of names, only `clusters` is expanded, with these."""
    for name, annotation in _fields(kind).items():
        here = (*place, name)
        yield here
        for each in _options(annotation):
            if get_origin(each) is not dict:
                yield from places(each, clusters, here)
            elif here == ("clusters",):
                blocks = ((cluster, block) for cluster in clusters for block in _options(get_args(each)[1]))
                for cluster, block in blocks:
                    yield from places(block, clusters, (*here, cluster))


def _types_at(root: Any, place: Place) -> list[Any]:
    found = [root]
    for part in place:
        found = [option for each in found for below in _below(each, part) for option in _options(below)]
    return found


def _below(kind: Any, part: int | str) -> Iterator[Any]:
    if isinstance(kind, type) and issubclass(kind, PolicySettings) and part == "clusters":
        yield dict[str, kind]  # overrides are such blocks themselves
    elif get_origin(kind) in (dict, Mapping):
        yield get_args(kind)[1]
    elif get_origin(kind) in (list, tuple) and isinstance(part, int):
        yield get_args(kind)[0]
    elif part in _fields(kind):
        yield _fields(kind)[str(part)]


def _fields(kind: Any) -> dict[str, Any]:
    """Return each field's annotation by its name; empty for an annotation that is no block."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: each.annotation for name, each in kind.model_fields.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return get_type_hints(kind)
    return {}


def _options(annotation: Any) -> list[Any]:
    """Yield the types that an annotation allows, without `Annotated`, `Optional` and unions."""
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [option for each in get_args(annotation) for option in _options(each) if each is not type(None)]
    return [annotation]


# Suggests known names close to a misspelt one.

_ALIKE = 0.6
"""A ratio of difflib. Short words with swapped, missing or doubled letters have a higher one."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name; case and separators (_, - or none) do not count."""
    by_plain = {_normalize(each): each for each in known}
    found = get_close_matches(_normalize(name), by_plain, n=1, cutoff=_ALIKE)
    return by_plain[found[0]] if found else None


def suggest(name: str, known: Collection[str]) -> str:
    """Return a clause for the end of a sentence: the most similar name, or all known names if they are few."""
    near = nearest(name, known)
    if near is not None:
        return f"; did you mean {near}?"
    if not 0 < len(known) <= _FEW:
        return ""
    *first, last = known
    return f"; there is {', '.join(first)} and {last}" if first else f"; there is {last}"


_FEW = 12


def _normalize(name: str) -> str:
    return "".join(each for each in name.casefold() if each not in "_-. ")


# The environment variables that begin with HEADGATE_: what they set, and which one has no effect.

PREFIX, DELIMITER = "HEADGATE_", "__"

_OF_OTHERS = frozenset({"HEADGATE_MAVEN_URL", "HEADGATE_SETTINGS"})
"""Variables that are no settings, but have an effect."""


def with_variables(
    root: type[BaseModel], file: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[dict[str, Any], dict[Place, str]]:
    """Return the content of a file with the settings of the environment laid over it, and which variable set each."""
    content, variables = dict(file), dict[Place, str]()
    for name, text in sorted(environment.items()):
        parts = name.upper().removeprefix(PREFIX).lower().split(DELIMITER)
        if name.upper().startswith(PREFIX) and parts[0] in names_at(root, ()):
            place = _spell_clusters(parts, file)
            value = _parse_variable(root, place, text)
            ahead = [(place, value)]
            while ahead:
                at, found = ahead.pop()
                inner = found.items() if isinstance(found, dict) else ()
                ahead += [((*at, key), each) for key, each in inner]
                variables |= {} if inner else {at: name}
            for part in reversed(place):
                value = {part: value}
            content = _lay_over(content, value)
    return content, variables


def _spell_clusters(parts: Sequence[str], file: Mapping[str, Any]) -> Place:
    """Return a path with the clusters' names as the file writes them, because variables ignore case."""
    place: Place = ()
    block: Any = file
    for part in parts:
        names = [*_names(block), *_names(file.get("clusters"))] if place[-1:] == ("clusters",) else []
        alike = {name for name in names if str(name).lower() == part}
        place = (*place, alike.pop() if len(alike) == 1 else part)
        block = block.get(place[-1]) if isinstance(block, Mapping) else None
    return place


def _names(block: Any) -> Iterable[str]:
    return block if isinstance(block, Mapping) else ()


def _parse_variable(root: type[BaseModel], place: Place, text: str) -> Any:
    """Return the value of a variable: JSON where a block or a list belongs; its text if it is none."""
    collections = (dict, Mapping, list, tuple, frozenset)
    if any(_fields(kind) or get_origin(kind) in collections for kind in _types_at(root, place)):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def _lay_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return {**below, **{name: _lay_over(below.get(name), value) for name, value in above.items()}}


def variable_for(parts: Sequence[int | str]) -> str:
    """Return the name of a setting's variable: ``HEADGATE_KAFKA__SASL__PASSWORD``."""
    return PREFIX + DELIMITER.join(str(part) for part in parts).upper()


def unknown_variables(
    environment: Iterable[str], names: Iterable[str], settings: Iterable[Place]
) -> Iterator[tuple[str, str]]:
    """Yield variables that look like settings and have no effect, with a sentence; `names` are the top settings."""
    top = {name.upper() for name in names}
    unknown = [
        name
        for name in environment
        if name.upper().startswith(PREFIX)
        and name.upper().removeprefix(PREFIX).partition(DELIMITER)[0] not in top
        and name.upper() not in _OF_OTHERS
    ]
    known = [variable_for(place) for place in settings] if unknown else []
    for name in sorted(unknown):
        yield name, f"is no setting and has no effect{suggest(name, [*known, *_OF_OTHERS])}"
