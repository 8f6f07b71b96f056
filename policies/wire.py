"""The wire format: CloudEvents 1.0 in structured JSON mode, one event per record.

All sides use it: collectors write observations, the query reads them and writes decisions, actuators and the exporter
read those. Decoding is strict about required fields and ignores unknown ones.
"""

import json
import zlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from policies.decisions import Decision
from policies.observations import LONGEST_SUBJECT, ActuatorEvent, Observation, Reading
from policies.units import AnyInstant, ClosedEnum, format_instant, to_millis

MAX_DECISION_BYTES = 1_000_000
"""No record on a decided topic is larger: a little under what Kafka takes by default."""
MAX_AUDIT_BYTES = 4 * MAX_DECISION_BYTES
"""The same for the audit, which holds a decision and the numbers that led to it."""
MAX_RECORD_BYTES = 4 * 1024 * 1024
"""A larger record is not read but put into the dead letters: no reading of a real fleet comes near it."""

CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"
"""The header `content-type` of every record: CloudEvents' structured mode."""

LONGEST_ID = 1000
"""The longest id of an event; decisions name the ids of their evidence."""

AUDIT_TYPE = "headgate.audit-entry.v1"
EVIDENCE_BYTES = 16_384
"""A decision's audit entry contains its evidence up to this size."""
DEAD_LETTER_TYPE = "headgate.dead-letter.v1"
LETTERS_COUNTED_TYPE = "headgate.dead-letters-counted.v1"
_LONGEST_TAG = 100
"""An unknown type is shown up to this length."""

Data = TypeVar("Data")


class DeadLetterReason(ClosedEnum):
    """Why a record could not be read."""

    TOO_LARGE = "too_large", "Larger than any event may be; not read."
    MALFORMED = "malformed", "No JSON, or not the envelope of a CloudEvent."
    UNKNOWN_TYPE = "unknown_type", "An event, but of a type that nothing here reads."
    INVALID = "invalid", "The data does not fit its type."
    POLICY_FAILED = "policy-failed", "A policy could not take it: an error in the policy, not in the record."
    WRONG_TOPIC = "wrong-topic", "A reading that belongs to another topic."
    UNKNOWN_CLUSTER = "unknown-cluster", "A reading of a cluster that the settings do not name."
    TOO_MANY = "too-many", "One of more readings than a batch takes of one cluster and topic; newer ones were taken."
    CLUSTER_MISMATCH = "cluster_mismatch", "The cluster it names is not the one it was routed by."


class BadRecordError(Exception):
    """A record that is not an event of the contract.

    The detail is the place in the record, and the value that was expected there. The cluster is the unknown one that
    the record names, if that is the fault.
    """

    def __init__(self, reason: DeadLetterReason, detail: str, cluster: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.cluster = cluster


class Event(BaseModel, Generic[Data]):
    """A CloudEvents 1.0 envelope around one reading or decision."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(min_length=1, max_length=LONGEST_ID)
    source: str = Field(min_length=1, max_length=LONGEST_ID)
    type: str = Field(max_length=LONGEST_ID)
    subject: str | None = Field(default=None, max_length=LONGEST_SUBJECT)
    time: Annotated[AwareDatetime | None, AnyInstant.__metadata__[0]] = None
    datacontenttype: Literal["application/json"] = "application/json"
    data: Data


_AnyEvent = Event[Any]


class EventReader(Generic[Data]):
    """Decodes records into events of the given kinds: models with an ``event_type``."""

    def __init__(self, kinds: Iterable[type[Data]]) -> None:
        self._adapter: TypeAdapter[Event[Data]] = _adapter(tuple(kinds))

    def read(self, record: bytes | str) -> Event[Data]:
        """Decode one record; raises BadRecordError if it is no event, or its type or data is not of these kinds."""
        if len(record) > MAX_RECORD_BYTES:
            raise too_large(len(record))
        try:
            return self._adapter.validate_json(record, strict=True)
        except ValidationError as error:
            raise _bad_record(error) from None


def too_large(size: int) -> BadRecordError:
    """The error for a record of this size."""
    return BadRecordError(
        DeadLetterReason.TOO_LARGE, f"{size} bytes, more than the {MAX_RECORD_BYTES} a record may have"
    )


@cache
def _adapter(kinds: tuple[Any, ...]) -> TypeAdapter[Any]:
    """The decoder of events of these kinds; built once, as that takes a millisecond or two for each kind."""
    events = [_event_model(each) for each in kinds]
    kind: Any = reduce(or_, events)
    if len(events) > 1:
        kind = Annotated[kind, Field(discriminator="type")]
    return TypeAdapter(kind)


@cache
def _event_model(kind: Any) -> Any:
    tag: Any = Literal[kind.event_type]
    return create_model(f"{kind.__name__}Event", __base__=Event[kind], type=(tag, ...))


def _bad_record(error: ValidationError) -> BadRecordError:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "union_tag_invalid":
        tag = str(first["ctx"]["tag"])
        return BadRecordError(DeadLetterReason.UNKNOWN_TYPE, f"type: '{tag[:_LONGEST_TAG]}' is none of the known ones")
    if first["type"] == "union_tag_not_found":
        return BadRecordError(DeadLetterReason.UNKNOWN_TYPE, "type: is needed")
    reason = DeadLetterReason.INVALID if "data" in first["loc"] else DeadLetterReason.MALFORMED
    if first["loc"] == ("type",):
        reason = DeadLetterReason.UNKNOWN_TYPE
    # The union's tag leads the path of a nested error; it only repeats the type.
    place = ".".join(str(part) for part in first["loc"] if not str(part).startswith("headgate.")) or "record"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return BadRecordError(reason, f"{place}: {first['msg'][:200]}{more}")


def observation_event(reading: Reading, *, id: str, source: str, time: AwareDatetime) -> bytes:  # noqa: A002
    """Encode a reading as the record a collector publishes; the record's key is ``reading.cluster``."""
    return encode_event(reading.event_type, id, source, reading.subject(), time, reading)


def decision_event(decision: Decision) -> bytes:
    """Encode a decision as a record of its decided topic; the record's key is ``decision.record_key()``."""
    return encode_event(
        decision.event_type,
        decision.decision_id,
        f"headgate/policy/{decision.policy}",
        decision.subject,
        decision.decided_at,
        decision,
    )


def actuator_event(event: ActuatorEvent, *, id: str, at: AwareDatetime) -> bytes:  # noqa: A002
    """Encode an actuator's report: a record of the audit topic keyed by cluster, or of a topic of its own."""
    return encode_event(event.event_type, id, event.source, event.subject(), at, event)


def audit_event(
    decision: Decision, evidence: Iterable[Observation] = (), encoded: dict[str, tuple[int, Any]] | None = None
) -> bytes:
    """Encode a decision or note with the numbers that led to it, as a record of the audit topic; keyed by cluster.

    Its evidence, as far as its step saw it, is stored with it up to `EVIDENCE_BYTES`, because the observed topics keep
    records for a day, the audit for a month. `encoded` has the readings encoded so far in this step, by id, each with
    its size in JSON: thousands of decisions may rest on one large reading.
    """
    known, room_bytes, observations = {} if encoded is None else encoded, EVIDENCE_BYTES, list[dict[str, Any]]()
    for each in evidence:
        if each.id not in known:
            text = each.reading.model_dump_json()
            known[each.id] = len(text), json.loads(text)
        size, content = known[each.id]
        if (room_bytes := room_bytes - size) < 0:
            break
        told = {"id": each.id, "type": each.reading.event_type, "subject": each.reading.subject()}
        observations.append({**told, "time": format_instant(each.at), "data": content})
    data: dict[str, Any] = {"decision_type": decision.event_type, "decision": decision}
    data |= {"numbers": dict(decision.numbers), "observations": observations}
    return encode_event(AUDIT_TYPE, decision.decision_id, "headgate/audit", decision.subject, decision.decided_at, data)


def encode_event(kind: str, id: str, source: str, subject: str, time: AwareDatetime, data: object) -> bytes:  # noqa: A002
    """Encode an event with any data."""
    event = _AnyEvent(id=id, source=source, type=kind, subject=subject, time=time, data=data)
    return event.model_dump_json().encode()


# Kafka's records: those that the query reads, and those that it writes.

KEPT_BYTES = 16 * 1024
"""A record that cannot be read, or is too large, is kept up to this many bytes."""

LAST_MS = to_millis(datetime.max.replace(tzinfo=UTC))
"""The latest instant that can be written."""


class Output(NamedTuple):
    """A record to write. `topic` has no prefix yet."""

    topic: str
    key: str
    value: bytes


class Cut(NamedTuple):
    """The size and the hash of a record of which only the first bytes were read."""

    bytes: int
    sha256: str


class ObservedRecord(NamedTuple):
    """A record of an observed topic or another one of the loop, as Kafka stores it."""

    topic: str
    """The full name, with the prefix."""
    partition: int
    offset: int
    appended_ms: int
    value: bytes | None
    cut: Cut | None = None
    """Set if `value` holds only the first bytes."""

    def position(self) -> str:
        """``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}"


# Maps a watched cluster to its share: the same in every process and version, whatever other clusters there are.

SHARES_TOPIC = "shares"
"""Its partitions are the shares of watched clusters. Without the loop's prefix."""
SHARE_COUNT = 12
"""The most processes that can work in parallel. All processes agree on this number: never change it."""

DECIDER_TOPIC = "decider"
"""The process with its one partition decides. Without the loop's prefix."""
DECIDER_SHARE = 0


def share_of(cluster: str) -> int:
    """The share, from 0, that a cluster belongs to."""
    return zlib.crc32(cluster.encode()) % SHARE_COUNT


def clusters_in(shares: AbstractSet[int], clusters: Iterable[str]) -> frozenset[str]:
    """The clusters that belong to these partitions."""
    return frozenset(cluster for cluster in clusters if share_of(cluster) in shares)
