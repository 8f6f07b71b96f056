"""Lists the settings that are valid at a place of the file, from the Pydantic models."""

import dataclasses
import json
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from policies.settings import PolicySettings

Place = tuple[int | str, ...]

_DEEPEST = 9


def model_at(root: type[BaseModel], place: Place) -> type | None:
    """Return the model (or dataclass) of the block at a place; None if no block belongs there."""
    found = _types_at(root, place)
    return next((each for each in found if _fields(each)), None)


def names_at(root: type[BaseModel], place: Place) -> tuple[str, ...]:
    """Return the names of the settings of the block at a place; empty if no block belongs there."""
    model = model_at(root, place)
    return () if model is None else tuple(_fields(model))


def field_at(root: type[BaseModel], place: Place) -> FieldInfo | None:
    """Return the field of a model at a place; None if there is none."""
    model = model_at(root, place[:-1]) if place else None
    if model is None or not issubclass(model, BaseModel):
        return None
    return model.model_fields.get(str(place[-1]))


def is_secret(root: type[BaseModel], place: Place) -> bool:
    """Return whether a secret belongs at a place."""
    return SecretStr in _types_at(root, place)


def places(root: type[BaseModel], clusters: Sequence[str]) -> Iterator[Place]:
    """Yield the path of every setting; below maps of names, only `clusters` is expanded, with the watched ones."""
    yield from _places_below(root, (), clusters)


def _places_below(kind: Any, place: Place, clusters: Sequence[str]) -> Iterator[Place]:
    if len(place) >= _DEEPEST:
        return
    for name, annotation in _fields(kind).items() if isinstance(kind, type) else ():
        here = (*place, name)
        yield here
        for each in _options(annotation):
            if get_origin(each) is dict:
                for cluster in clusters if here == ("clusters",) else ():
                    for value in _options(get_args(each)[1]):
                        yield from _places_below(value, (*here, cluster), clusters)
            else:
                yield from _places_below(each, here, clusters)


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
    elif isinstance(kind, type) and part in _fields(kind):
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


# Checks environment variables that begin with HEADGATE_: which one caused a mistake, and which one has no effect.

PREFIX, DELIMITER = "HEADGATE_", "__"

_OF_OTHERS = frozenset({"HEADGATE_IVY_SETTINGS", "HEADGATE_SETTINGS"})
"""Variables that are no settings, but have an effect."""

_KUBERNETES = re.compile(
    r"HEADGATE(?:_[A-Z0-9]+)*_(?:SERVICE_(?:HOST|PORT(?:_\w+)?)|PORT(?:_\d+_(?:TCP|UDP)(?:_\w+)?)?)"
)
"""The variables that Kubernetes sets in a pod for services named headgate-…."""
_PORT = re.compile(r"(?<!_SERVICE)_PORT$")
"""Of these, the variables that are addresses."""


def variable_of(place: Place, environment: Mapping[str, str]) -> str | None:
    """Return the variable that sets a setting; None if no variable does.

    It is the setting's own variable, or that of a block around it whose JSON contains the setting.
    """
    given = {name.upper(): name for name in environment}
    parts = [str(part) for part in place]
    for length in range(len(parts), 0, -1):
        name = given.get(variable_for(parts[:length]))
        if name is not None and (length == len(parts) or _contains(environment[name], parts[length:])):
            return name
    return None


def variable_below(place: Place, environment: Mapping[str, str]) -> str | None:
    """Return a variable that sets something below a setting; None if there is none."""
    above = f"{variable_for(place)}{DELIMITER}"
    return next((name for name in sorted(environment) if place and name.upper().startswith(above)), None)


def with_names_of_clusters(given: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables' settings with the clusters' names as the file writes them, because variables ignore case.

    Args:
        given: the variables' settings, as nested blocks.
        file: the file's content, valid or not.
    """
    names, policies = _block(file, "clusters"), _block(given, "policies")
    named = {**given, **_rename_clusters(given, names)}
    if policies:
        of_file = _block(file, "policies")
        blocks = {
            name: {**block, **_rename_clusters(block, {**names, **_block(_block(of_file, name), "clusters")})}
            if isinstance(block, Mapping)
            else block
            for name, block in policies.items()
        }
        named["policies"] = blocks
    return named


def _rename_clusters(block: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Rename each cluster of a block to the name in the file that differs only in case, if there is exactly one."""
    clusters, renamed = _block(block, "clusters"), {}
    for name, value in clusters.items():
        alike = [spelt for spelt in names if str(spelt).lower() == name]
        renamed[alike[0] if len(alike) == 1 and alike[0] not in clusters else name] = value
    return {"clusters": renamed} if renamed else {}


def _block(around: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = around.get(name)
    return value if isinstance(value, Mapping) else {}


def variable_for(parts: Sequence[int | str]) -> str:
    """Return the name of a setting's variable: ``HEADGATE_KAFKA__SASL__PASSWORD``."""
    return PREFIX + DELIMITER.join(str(part) for part in parts).upper()


def unknown_variables(
    environment: Mapping[str, str], names: Iterable[str], settings: Iterable[Place]
) -> Iterator[tuple[str, str]]:
    """Yield variables that look like settings and have no effect: the name, and a sentence.

    Args:
        names: the top-level settings.
    """
    top = {name.upper() for name in names}
    unknown = [
        name
        for name, value in environment.items()
        if name.upper().startswith(PREFIX)
        and name.upper().removeprefix(PREFIX).partition(DELIMITER)[0] not in top
        and name.upper() not in _OF_OTHERS
        and not (_KUBERNETES.fullmatch(name) and (value.startswith(("tcp://", "udp://")) or not _PORT.search(name)))
    ]
    known = [variable_for(place) for place in settings] if unknown else []
    for name in sorted(unknown):
        yield name, f"is no setting and has no effect{suggest(name, [*known, *_OF_OTHERS])}"


def _contains(text: str, parts: Sequence[str]) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    for part in parts:
        below = dict(zip(map(str, range(len(value))), value, strict=True)) if isinstance(value, list) else value
        if not isinstance(below, dict) or part not in below:
            return False
        value = below[part]
    return True
