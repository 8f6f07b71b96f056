"""Lists the settings that are valid at a place of the file, from the Pydantic models."""

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
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


def is_number(root: type[BaseModel], place: Place) -> bool:
    """Return whether a number belongs at a place, and not a boolean."""
    found = _types_at(root, place)
    return bool not in found and any(each in (int, float) for each in found)


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
