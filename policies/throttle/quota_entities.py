"""The targets of Kafka's client quotas, and how people write them. Names are data: each may contain any character."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias


class Default(Enum):
    """Kafka's default entity: all users, or client ids, without a quota of their own. Its name is null on the wire.

    A user or client id may be called ``default`` or ``<default>``, so no string can stand for it.
    """

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
EntityName: TypeAlias = str | Default
_WORD = "default"
"""The default entity in settings. The entity that is called so is written ``{name: default}`` there."""
_NEXT_PART = re.compile(r",(?=(?:user|client-id)=)")


@dataclass(frozen=True, slots=True)
class Entity:
    """The target of a quota: a user, a client id, or a user's client id; each may be the default one."""

    user: EntityName | None = None
    client_id: EntityName | None = None

    @property
    def parts(self) -> list[tuple[str, EntityName]]:
        """The names that it has, each with Kafka's word for its kind."""
        named = (("user", self.user), ("client-id", self.client_id))
        return [(kind, name) for kind, name in named if name is not None]

    def __str__(self) -> str:
        """Write it as Kafka's own tools do: ``user=alice,client-id=<default>``; as JSON where that is ambiguous.

        `parse_entity` reads both, and the settings take the JSON.
        """
        text = ",".join(f"{kind}={DEFAULT.value if name is DEFAULT else name}" for kind, name in self.parts)
        if text.isprintable() and parse_entity(text) == self:
            return text
        return json.dumps({kind.replace("-", "_"): write_name(name) for kind, name in self.parts})


def parse_entity(text: str, decode: Callable[[str], str] = str) -> Entity | None:
    """Read an entity as it is printed; None if it is none, or if the text is ambiguous."""
    names: dict[str, EntityName] = {}
    for part in _NEXT_PART.split(text) if not text.startswith("{") else ():
        kind, _, name = part.partition("=")
        if kind not in ("user", "client-id") or kind in names or not name:
            return None
        names[kind] = DEFAULT if name == DEFAULT.value else decode(name)
    return Entity(names.get("user"), names.get("client-id")) if names else _parse_json(text)


def forget_command(entity: str) -> str:
    """Return the command that declares the present quota of an entity, as it is printed, to be the original."""
    return f"headgate act --release --forget {shlex.quote(entity)}"


def read_name(given: Any) -> Any:
    """Read a name of the settings: the word ``default``, or ``{name: ...}``, which is taken literally."""
    if isinstance(given, Mapping) and given.keys() == {"name"}:
        return given["name"]
    return DEFAULT if given == _WORD else given


def write_name(name: EntityName) -> object:
    """Write a name as settings have it."""
    if name is DEFAULT:
        return _WORD
    return {"name": name} if name == _WORD else name


def _parse_json(text: str) -> Entity | None:
    try:
        given = json.loads(text)
    except ValueError:
        return None
    if not isinstance(given, dict) or not given:
        return None
    names = {kind.replace("-", "_"): read_name(name) for kind, name in given.items()}
    is_valid = names.keys() <= {"user", "client_id"} and all(isinstance(n, EntityName) and n for n in names.values())
    return Entity(**names) if is_valid else None
