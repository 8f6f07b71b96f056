"""The vocabulary of the observed topics: the readings of collectors.

An observation is a level, not an edge: a complete reading of one thing. A failed reading is an observation, too.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from policies.units import ClosedEnum, to_millis

LONGEST_NAME = 249
"""The longest name of a cluster, policy or person."""
LONGEST_DETAIL = 2000
LONGEST_SUBJECT = 8192
"""The longest subject of an event; it may contain a whole path."""


Detail = Annotated[
    str,
    Field(max_length=LONGEST_DETAIL),
    BeforeValidator(lambda detail: detail[:LONGEST_DETAIL] if isinstance(detail, str) else detail),
]
"""An error's text, which may be of any length: it is cut rather than the reading refused."""


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
    if isinstance(schema, dict) and schema.get("type") in ("list", "tuple", "set", "frozenset", "dict"):
        schema["fail_fast"] = True
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _tell_first_only(part)


class Observed(BaseModel):
    """A model that reports only the first error in each list and each map.

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


def name_failure(outcome: str) -> str:
    """Return the outcome of an attempt that failed, or `silence` if no attempt has."""
    return "silence" if outcome in ("", Outcome.OK.value) else outcome


def sort_observations(
    observations: "list[Observation] | tuple[Observation, ...]", kinds: tuple[type[Reading], ...] = ()
) -> list[Observation]:
    """Sort observations by (at, kind, id) and drop repeated events, so that their order and repetition do not matter.

    Of one instant, readings of `kinds` come in that order, after all others. So no order of ids changes the result.
    An id is unique only within its source (CloudEvents): two collectors may both count from 1.
    """
    ranks = {kind: rank for rank, kind in enumerate(kinds, 1)}
    first: dict[tuple[str, str], Observation] = {}
    for observation in sorted(observations, key=lambda o: (o.at, ranks.get(type(o.reading), 0), o.id, o.source)):
        first.setdefault((observation.source, observation.id), observation)
    return list(first.values())


# The vocabulary that all actuators share to report what they did, refused or failed to do.


class ReportResult(ClosedEnum):
    """The results that all actuators have in common."""

    APPLIED = "applied", "The watched system has accepted it."
    UNCHANGED = "unchanged", "Nothing had to be done; published when it is new."
    REFUSED = "refused", "Nothing was done, on purpose; published when it is new."
    FAILED = "failed", "The watched system did not accept it; `detail` says why, and it is retried."


@dataclass(frozen=True, slots=True)
class ReportedEffect:
    """A report in the terms that all actuators share, for page, status, metrics and alerts."""

    target: str
    """The thing that was changed, such as a quota's entity or a bookie; empty: the whole cluster."""
    by: str
    """The actuator in words, such as ``the quota actuator``."""
    result: ReportResult
    value: str | None
    """The value in words; after a failure or refusal, the value that is not set."""
    is_held: bool = True
    """Whether Headgate has set the value. It has not, once it put the original back."""
    number: float | None = None
    """The value as a number, if it is one."""
    detail: str | None = None
    """Why it was refused or failed."""
    confirmed_brokers: int | None = None
    """Number of brokers that show the value; None: not checked one by one."""
    broker_count: int | None = None
    since: datetime | None = None
    """The time from which the value holds, if it is not the time of the report."""
    subject: str | None = None
    """The subject that the decision is about; the cluster for all decisions about it; None: the report's subject."""


class ActuatorEvent(BaseModel, ABC):
    """An actuator's report about one cluster; each kind is a subclass with further fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str]
    """The CloudEvents ``type``."""
    source: ClassVar[str]
    """The CloudEvents ``source``: the actuator."""

    cluster: str = Field(description="The watched cluster.")

    @abstractmethod
    def subject(self) -> str:
        """The CloudEvents ``subject``."""

    def effect(self) -> ReportedEffect | None:
        """Return the report in the shared terms; None if it is not about a value that is set."""
        return None
