"""Settings of the throttle policy: ``policies.throttle``, per cluster by name or glob."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Self, TypeAlias

import pydantic.dataclasses
from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from policies.free_space.limits import ExpiredAction, FreeSpaceSettings
from policies.units import ClosedEnum, PositiveDuration, Size, parse_duration


class Preset(StrEnum):
    """Settings that reproduce another product."""

    STRIMZI = "strimzi"


_STRIMZI: Mapping[str, Any] = {
    "anticipate": False,
    "recovery_margin": 0.0,
    "min_hold": "0s",
    "min_change": 0.0,
    "departed_hold": "0s",
    "expired_action": ExpiredAction.FALLBACK.value,
}
"""The released plugin opens and closes at once, and uses its last complete reading only."""


class ThrottleSettings(FreeSpaceSettings):
    """One throttle factor for a cluster whose disks fill up. Without a limit it is observed, never throttled."""

    preset: Preset | None = Field(
        default=None,
        description="`strimzi` reproduces the released kafka-quotas-plugin: no margins and holds, a volume unseen for "
        "`validity` is forgotten, an empty good reading means 1.0, the start is 1.0, an expired decision means the "
        "fallback.",
    )

    @classmethod
    def expand(cls, block: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a preset by its settings; settings of the block itself win over them."""
        return {**(_STRIMZI if block.get("preset") == Preset.STRIMZI else {}), **block}

    @classmethod
    def overridden(cls, block: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the block's preset and its settings by the override's preset, which may be none."""
        if "preset" not in override:
            return {**block, **override}
        own = {name: value for name, value in block.items() if name != "preset"}
        return {**own, **cls.expand(override)}

    @property
    def forgets_unread(self) -> bool:
        """Whether a volume without a valid reading is forgotten, as the released plugin does."""
        return self.preset is Preset.STRIMZI

    @property
    def start_factor(self) -> float:
        """The factor before the first reading."""
        return 1.0 if self.preset is Preset.STRIMZI else self.fallback


# The client quotas of Kafka that carry out the factor: ``clusters.<name>.quotas``. Off unless set.
#
# Kafka applies only the most specific quota to a produce request: user with client id, user with the default client id,
# user; then the same for the default user; then client id, default client id. It counts per broker. So an entity named
# here slows down exactly those clients that have no more specific quota.
#
# The targets of quotas, and how people write them. Names are data: each may contain any character.


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
    """Read an entity as an object of JSON; the text begins with a brace."""
    try:
        given = json.loads(text)
    except ValueError:
        return None
    names = {kind.replace("-", "_"): read_name(name) for kind, name in given.items()}
    is_valid = names.keys() <= {"user", "client_id"} and all(isinstance(n, EntityName) and n for n in names.values())
    return Entity(**names) if names and is_valid else None


# The settings.

_Name = Annotated[str, Field(min_length=1, max_length=249)]
DEFAULT_FLOOR = 64 * 1024
"""Bytes per second and broker."""
_AS_NAME = GetPydanticSchema(lambda _, handler: handler.generate_schema(_Name))
_PRINCIPAL = "User:"


def _read_entity(given: Any, check: ValidatorFunctionWrapHandler) -> EntityName:
    name = read_name(given)
    return DEFAULT if name is DEFAULT else str(check(name))


def _read_excluded(given: Any, check: ValidatorFunctionWrapHandler) -> str:
    name = read_name(given)
    if name is DEFAULT:
        raise ValueError("name users one by one; without a user entity the default user has no quota to begin with")
    return str(check(name)) if name is not given else str(check(name)).removeprefix(_PRINCIPAL)


def _write_excluded(user: str) -> object:
    return {"name": user} if user.startswith(_PRINCIPAL) else write_name(user)


Name = Annotated[EntityName, _AS_NAME, WrapValidator(_read_entity), PlainSerializer(write_name)]
"""``alice``; ``default`` is Kafka's default entity, and ``{name: default}`` the entity that is really called so."""
Excluded = Annotated[str, _AS_NAME, WrapValidator(_read_excluded), PlainSerializer(_write_excluded)]
"""A user: ``alice``, or ``User:alice`` as in Kafka's ACLs and the Strimzi plugin; ``{name: ...}`` is literal."""


@pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class QuotaEntity:
    """An entity whose quota is set while its cluster is throttled."""

    user: Name | None = None
    client_id: Name | None = None
    base: Annotated[Size, Field(gt=0, le=2**53)] | None = None  # Kafka stores it as a double, exact up to here

    def __post_init__(self) -> None:
        if self.user is None and self.client_id is None:
            raise ValueError("needs a user, a client_id or both; `default` means all without a quota of their own")

    @property
    def entity(self) -> Entity:
        """The target of the quota."""
        return Entity(self.user, self.client_id)


_OrNone = BeforeValidator(lambda value: None if value == "none" else value)


class Cover(ClosedEnum):
    """Which quotas of a cluster are scaled."""

    ALL = "all", "The configured entities, and each more specific producer quota, with its present value as base."
    LISTED = "listed", "The configured entities only: clients with a more specific quota escape."


class QuotaSettings(BaseModel):
    """Decisions are carried out by Kafka's own client quotas, without a plugin in the brokers."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    entities: tuple[QuotaEntity, ...] = Field(
        description="Each with `user`, `client_id` or both (`default`: all without a quota of their own; `{name: "
        "default}`: the one that is really called so) and `base`, the bytes per second and broker at factor 1.0. "
        "Without `base`, the entity's existing quota is the base."
    )
    cover: Cover = Field(
        default=Cover.ALL,
        description="Kafka applies only the most specific quota of a client. `all`: each producer quota that is more "
        "specific than an entity is scaled, too, with its own present value as base, and is put back. `listed`: only "
        "`entities` are touched, and clients with more specific quotas escape.",
    )
    exclude: tuple[Excluded, ...] = Field(
        default=(),
        description="Users that are never slowed down. Give each a quota of their own in Kafka, which is never "
        "changed; one without gets a huge one while an entity would slow it down.",
    )
    floor_bytes_per_second: Annotated[Size, Field(gt=0)] = Field(
        default=ByteSize(DEFAULT_FLOOR),
        description="The lowest quota. The lower it is, the longer Kafka makes producers wait after a sudden stop.",
    )
    max_told_wait: Annotated[PositiveDuration | None, _OrNone] = Field(
        default=parse_duration("30s"),
        description="The longest wait that a lower quota may impose on a producer. Kafka makes it wait until its bytes "
        "in the brokers' quota window fit the new quota, so a quota goes down in steps. `none`: at once, however long "
        "the wait.",
    )
    verify_interval: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="How often the quotas are read and compared with what they should be. Below factor 1.0 they are "
        "read every 5 s, if that is sooner.",
    )

    @model_validator(mode="after")
    def _check_entities(self) -> Self:
        for problem in self._find_problems():
            raise ValueError(problem)
        return self

    def _find_problems(self) -> Iterable[str]:
        entities, floor = [spec.entity for spec in self.entities], self.floor_bytes_per_second
        if not entities:
            yield "entities: needs at least one, such as {client_id: default, base: 10MB}"
        for entity in entities:
            if entities.count(entity) > 1:
                yield f"entity {entity} stands there twice"
        for spec in self.entities:
            if spec.user in self.exclude:
                yield f"entity {spec.entity} names user {spec.user}, which is excluded: take it out of one of the two"
        for spec in self.entities:
            if spec.base is not None and spec.base < floor:
                yield f"the base of entity {spec.entity} ({spec.base:d}) is below floor_bytes_per_second ({floor:d})"
