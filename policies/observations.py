"""The vocabulary of the observed topics: the readings of collectors.

An observation is a level, not an edge: a complete reading of one thing. A failed reading is an observation, too.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from policies.closed_enum import ClosedEnum
from policies.units import to_millis

LONGEST_NAME = 249
"""The longest name of a cluster, policy or person."""
LONGEST_DETAIL = 2000
LONGEST_SUBJECT = 8192
"""The longest subject of an event; it may contain a whole path."""


def _cut(detail: Any) -> Any:
    """Truncate an error's text, which may be of any length, rather than refuse the reading."""
    return detail[:LONGEST_DETAIL] if isinstance(detail, str) else detail


Detail = Annotated[str, Field(max_length=LONGEST_DETAIL), BeforeValidator(_cut)]


class Outcome(ClosedEnum):
    """How a collector's attempt to read something ended."""

    OK = "ok", "It was read; the values stand in the event."
    TIMEOUT = "timeout", "No answer in time."
    UNREACHABLE = "unreachable", "No connection could be made, or it was lost."
    UNAUTHORIZED = "unauthorized", "The login or the permission was refused."
    UNSUPPORTED = "unsupported", "The system is too old for this reading (a broker before Kafka 3.3 gives no sizes)."
    ABSENT = "absent", "The system was read, and has no such node. That is not the same as an empty one."
    ERROR = "error", "Anything else; `detail` says what."


def _tell_first_only(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "tuple", "set", "frozenset"):
            schema["fail_fast"] = True
        for part in schema.values():
            _tell_first_only(part)
    elif isinstance(schema, list):
        for part in schema:
            _tell_first_only(part)


class Observed(BaseModel):
    """A model that reports only the first error in each list.

    A record from elsewhere can have two million errors, at a kilobyte and ten microseconds each.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The usual schema, with lists that fail fast."""
        schema = handler(source)
        _tell_first_only(schema)
        return schema


class Reading(Observed):
    """The data of an observed event; each kind of reading is a subclass.

    Unknown fields are ignored, so that newer collectors can talk to older policies.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    event_type: ClassVar[str]
    """The CloudEvents ``type``, such as ``headgate.log-dirs.v1``."""

    cluster: str = Field(
        min_length=1, max_length=LONGEST_NAME, description="The watched cluster's name in the settings."
    )
    outcome: Outcome = Field(description="How the attempt to read ended; anything but `ok` carries no values.")
    detail: Detail | None = Field(default=None, description="The error in a few words; never a secret.")

    def subject(self) -> str:
        """The CloudEvents ``subject``: the thing that was read."""
        return self.cluster

    def identity(self) -> str:
        """Identifies the node, tree or system that was read, where the subject alone does not identify it."""
        return self.subject()


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading as a policy sees it."""

    id: str
    """The event's id, which decisions name as evidence."""
    at: datetime
    """When Kafka appended the record (in a replayed file: the event's time); its age is measured from here."""
    reading: Reading
    source: str = ""
    """The collector that published it, by the event's `source`; empty if that is not known."""
    at_ms: int = field(init=False, repr=False, compare=False)
    """`at` in milliseconds since the epoch."""

    def __post_init__(self) -> None:
        """Compute `at_ms` once: a step reads it up to ten times an observation."""
        object.__setattr__(self, "at_ms", to_millis(self.at))


def sort_observations(
    observations: "list[Observation] | tuple[Observation, ...]", kinds: tuple[type[Reading], ...] = ()
) -> list[Observation]:
    """Sort observations by (at, kind, id) and drop repeated ids, so that their order and repetition do not matter.

    Of one instant, readings of `kinds` come in that order, after all others. So no order of ids changes the result.
    """
    ranks = {kind: rank for rank, kind in enumerate(kinds, 1)}
    first: dict[str, Observation] = {}
    for observation in sorted(observations, key=lambda o: (o.at, ranks.get(type(o.reading), 0), o.id)):
        first.setdefault(observation.id, observation)
    return list(first.values())
